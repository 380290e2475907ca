#include "controller/dataflow/step_flow.h"

#include <algorithm>
#include <utility>

namespace sluice::controller {
namespace {

constexpr size_t kActor = 0;  // the actor's pool

// What only one stage at a time can have.
struct Lane {
  size_t pool = 0;
  bool beside = false;
  auto operator<=>(const Lane&) const = default;
};

std::set<Lane> LanesOf(const FlowPlan& plan, const FlowItem& item) {
  if (item.stage == FlowItem::kWeightSync) return {{kActor, false}, {plan.rollout, false}};
  const FlowPlan::Stage& stage = plan.stages[item.stage];
  return {{stage.pool, stage.what.beside}};
}

// The least version of the weights that may answer for a step.
int64_t VersionFor(const FlowPlan& plan, const FlowProgress& progress, int64_t step) {
  return std::max(progress.standstill, step - 1 - plan.ahead);
}

bool WithinReach(const FlowPlan& plan, const FlowProgress& progress, int64_t step, int64_t last) {
  return step <= std::min(last, progress.steps_done + 1 + plan.ahead);
}

// Some step's filter may still take further prompts and answer them.
bool MayAnswerMore(const FlowPlan& plan, const FlowProgress& progress) {
  for (size_t place = 0; place < plan.stages.size(); ++place) {
    if (plan.stages[place].what.op != "filter") continue;
    for (const auto& [number, step] : progress.steps) {
      if (!step.done.contains(place)) return true;
    }
  }
  return false;
}

// The next generation is of newer weights than the pool has, and there are such.
bool SyncIsDue(const FlowPlan& plan, const FlowProgress& progress, int64_t last) {
  if (!plan.syncs_weights() || progress.rollout_version >= progress.steps_done) return false;
  const int64_t next = progress.next_to_generate;
  if (next > last || MayAnswerMore(plan, progress)) return false;
  if (plan.newest) return WithinReach(plan, progress, next, last);
  const int64_t needed = VersionFor(plan, progress, next);
  return needed > progress.rollout_version && needed <= progress.steps_done;
}

bool InputsAreDone(const FlowPlan::Stage& stage, const FlowProgress::Step& step) {
  return std::all_of(stage.inputs.begin(), stage.inputs.end(), [&](size_t input) { return step.done.contains(input); });
}

// Places of the stages before `stage` whose results lie on other pools and were not brought to its own yet.
std::vector<size_t> ToBring(const FlowPlan& plan, const FlowProgress::Step& step, const FlowPlan::Stage& stage) {
  std::vector<size_t> stages;
  const auto brought = step.brought.find(stage.pool);
  for (const size_t before : stage.before) {
    if (plan.stages[before].pool == stage.pool) continue;
    if (brought == step.brought.end() || !brought->second.contains(before)) stages.push_back(before);
  }
  return stages;
}

}  // namespace

FlowPlan MakeFlowPlan(const v1::JobSpec& spec) {
  FlowPlan plan;
  std::map<std::string, size_t> places;
  const std::vector<DataflowStage> stages = DataflowOf(spec);
  if (stages.empty()) return plan;
  plan.pools = PoolsOf(spec);
  const auto pool_named = [&](const std::string& name) {
    const auto found =
        std::find_if(plan.pools.begin(), plan.pools.end(), [&](const Pool& pool) { return pool.name == name; });
    return static_cast<size_t>(found - plan.pools.begin());
  };
  for (const DataflowStage& stage : stages) {
    if (stage.op == "weight_sync") continue;  // not of a step: it comes where weights are needed
    FlowPlan::Stage& planned = plan.stages.emplace_back();
    planned.what = stage;
    planned.pool = pool_named(stage.pool);
    for (const std::string& input : stage.inputs) {
      const size_t place = places.at(input);
      planned.inputs.push_back(place);
      planned.before.insert(place);
      const FlowPlan::Stage& before = plan.stages[place];
      if (before.what.op != "filter") planned.before.insert(before.before.begin(), before.before.end());
    }
    places[stage.name] = plan.stages.size() - 1;
    if (stage.op == "generate") plan.rollout = planned.pool;
  }
  for (size_t place = 0; place < plan.stages.size(); ++place) {
    std::set<size_t> reading;
    for (const FlowPlan::Stage& reader : plan.stages) {
      if (reader.pool != plan.stages[place].pool && reader.before.contains(place)) reading.insert(reader.pool);
    }
    for (const size_t pool : reading) plan.stages[place].readers += static_cast<int32_t>(plan.pools[pool].ranks);
  }
  plan.ahead = plan.syncs_weights() ? MostStaleness(spec.rollout()) : 0;
  plan.newest = spec.rollout().mode() == "async";
  return plan;
}

void StandStill(int64_t step, FlowProgress* progress) {
  progress->steps_done = progress->standstill = step;
  progress->next_to_generate = step + 1;
}

std::vector<FlowItem> ReadyItems(const FlowPlan& plan, const FlowProgress& progress, int64_t last) {
  std::set<Lane> taken;
  for (const FlowItem& item : progress.running) taken.merge(LanesOf(plan, item));
  std::vector<FlowItem> ready;
  const auto take = [&](const FlowItem& item) {
    const std::set<Lane> lanes = LanesOf(plan, item);
    if (std::any_of(lanes.begin(), lanes.end(), [&](const Lane& lane) { return taken.contains(lane); })) return;
    taken.insert(lanes.begin(), lanes.end());
    ready.push_back(item);
  };

  const int64_t next = progress.next_to_generate;
  const bool weights_are_there = !plan.syncs_weights() || progress.rollout_version >= VersionFor(plan, progress, next);
  const bool sync_is_due = SyncIsDue(plan, progress, last);
  if (sync_is_due) {
    take(SyncNow(progress));
    // The rollout's pool cannot go on without: the actor's takes up nothing else.
    if (!weights_are_there && !taken.contains({plan.rollout, false})) taken.insert({kActor, false});
  }
  for (const auto& [number, step] : progress.steps) {
    for (size_t place = 0; place < plan.stages.size(); ++place) {
      const FlowPlan::Stage& stage = plan.stages[place];
      if (step.begun.contains(place) || !InputsAreDone(stage, step)) continue;
      if (stage.pool == kActor && number != progress.steps_done + 1) continue;
      // The weights that are due are those of before this update.
      if (sync_is_due && !plan.newest && place + 1 == plan.stages.size()) continue;
      take({number, place});
    }
  }
  if (weights_are_there && WithinReach(plan, progress, next, last) && !MayAnswerMore(plan, progress)) {
    for (size_t place = 0; place < plan.stages.size(); ++place) {
      if (plan.stages[place].inputs.empty()) take({next, place});
    }
  }
  return ready;
}

FlowItem SyncNow(const FlowProgress& progress) { return {progress.steps_done, FlowItem::kWeightSync}; }

v1::DataflowOp RequestOf(const FlowPlan& plan, const FlowProgress& progress, const FlowItem& item) {
  v1::DataflowOp op;
  op.set_step(item.step);
  if (item.stage == FlowItem::kWeightSync) {
    op.set_stage("weight_sync");
    op.set_op("weight_sync");
    op.set_weight_version(item.step);
    return op;
  }
  const FlowPlan::Stage& stage = plan.stages[item.stage];
  op.set_stage(stage.what.name);
  op.set_op(stage.what.op);
  op.set_ends_step(item.stage + 1 == plan.stages.size());
  op.set_beside(stage.what.beside);
  op.set_readers(stage.readers);
  op.set_weight_version(plan.syncs_weights() ? progress.rollout_version : progress.steps_done);
  const auto under_way = progress.steps.find(item.step);
  if (under_way == progress.steps.end()) return op;
  const FlowProgress::Step& step = under_way->second;
  for (const size_t before : ToBring(plan, step, stage)) {
    for (const v1::BatchReference& reference : step.outputs.at(before)) *op.add_inputs() = reference;
  }
  bool last_on_pool = true;
  for (size_t place = 0; place < plan.stages.size(); ++place) {
    if (place != item.stage && plan.stages[place].pool == stage.pool) last_on_pool &= step.done.contains(place);
  }
  op.set_drops_step(last_on_pool);
  return op;
}

std::vector<int32_t> RanksOf(const FlowPlan& plan, const FlowItem& item) {
  if (plan.pools.size() == 1) return {};
  const Pool& pool = plan.pools[item.stage == FlowItem::kWeightSync ? plan.rollout : plan.stages[item.stage].pool];
  std::vector<int32_t> ranks;
  if (item.stage == FlowItem::kWeightSync) ranks.push_back(0);  // has the weights that they get
  for (int64_t rank = 0; rank < pool.ranks; ++rank) ranks.push_back(static_cast<int32_t>(pool.first_rank + rank));
  return ranks;
}

void Begin(const FlowPlan& plan, const FlowItem& item, FlowProgress* progress) {
  progress->running.push_back(item);
  if (item.stage == FlowItem::kWeightSync) return;
  const FlowPlan::Stage& stage = plan.stages[item.stage];
  FlowProgress::Step& step = progress->steps[item.step];
  for (const size_t before : ToBring(plan, step, stage)) step.brought[stage.pool].insert(before);
  step.begun.insert(item.stage);
  if (stage.inputs.empty()) progress->next_to_generate = item.step + 1;
}

void Finish(const FlowPlan& plan, const FlowItem& item, const std::vector<v1::BatchReference>& outputs, absl::Time now,
            FlowProgress* progress) {
  std::erase(progress->running, item);
  if (item.stage == FlowItem::kWeightSync) {
    progress->rollout_version = item.step;
    return;
  }
  if (item.stage + 1 == plan.stages.size()) {
    progress->steps.erase(item.step);
    progress->steps_done = item.step;
    return;
  }
  FlowProgress::Step& step = progress->steps[item.step];
  step.done.insert(item.stage);
  step.outputs[item.stage] = outputs;
  step.done_at[item.stage] = now;
}

absl::Time ReadySince(const FlowPlan& plan, const FlowProgress& progress, const FlowItem& item, absl::Time now) {
  if (item.stage == FlowItem::kWeightSync) return now;
  const FlowPlan::Stage& stage = plan.stages[item.stage];
  if (stage.inputs.empty()) return now;
  absl::Time since = absl::InfinitePast();
  for (const size_t input : stage.inputs) since = std::max(since, progress.steps.at(item.step).done_at.at(input));
  return since;
}

}  // namespace sluice::controller
