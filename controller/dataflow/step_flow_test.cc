#include "controller/dataflow/step_flow.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/testing/status_matchers.h"

namespace sluice::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

v1::JobSpec Colocated() {
  v1::JobSpec spec;
  spec.set_recipe("grpo");
  spec.mutable_algorithm()->set_adv_estimator("grpo");
  spec.mutable_reward()->set_kind("gsm8k");
  spec.mutable_rollout()->set_mode("sync");
  spec.mutable_trainer()->set_nnodes(1);
  spec.mutable_trainer()->set_n_gpus_per_node(1);
  return spec;
}

v1::JobSpec Separate(const std::string& mode, int64_t max_staleness = 1) {
  v1::JobSpec spec = Colocated();
  spec.mutable_trainer()->set_n_gpus_per_node(3);
  v1::PoolSpec* rollout = spec.add_pools();
  rollout->set_pool("answer");
  rollout->set_ranks(2);
  rollout->add_roles("rollout");
  v1::PoolSpec* train = spec.add_pools();
  train->set_pool("train");
  train->set_ranks(1);
  train->add_roles("actor");
  spec.mutable_rollout()->set_mode(mode);
  spec.mutable_rollout()->set_max_staleness(max_staleness);
  return spec;
}

// Runs a flow on a clock that jumps from the end of one stage to the next: stages take as long as `seconds` says.
class Simulation {
 public:
  explicit Simulation(const v1::JobSpec& spec) : plan_(MakeFlowPlan(spec)), filters_(FiltersGroups(spec)) {}

  std::map<std::string, double> seconds = {{"generate", 10}, {"reward", 1},      {"filter", 4},       {"logprob", 2},
                                           {"update", 6},    {"advantage", 0.1}, {"weight_sync", 0.5}};
  int64_t checkpoint_every = 0;  // steps; 0: never

  void Run(int64_t steps) {
    while (progress_.steps_done < steps) {
      int64_t last = steps;
      if (checkpoint_every > 0) {
        last = std::min(steps, (progress_.standstill / checkpoint_every + 1) * checkpoint_every);
      }
      for (const FlowItem& item : ReadyItems(plan_, progress_, last)) BeginItem(item);
      if (flights_.empty()) {
        ASSERT_EQ(progress_.steps_done, last) << "nothing can begin";
        StandStill(last, &progress_);
        continue;
      }
      Land();
    }
    // What is still on its way.
    while (!flights_.empty()) Land();
  }

  // By step: the version of the weights that answered.
  std::vector<int64_t> versions() const { return versions_; }
  const std::vector<std::string>& log() const { return log_; }
  double now() const { return now_; }
  double busy(size_t pool) const { return busy_.contains(pool) ? busy_.at(pool) : 0; }
  const FlowPlan& plan() const { return plan_; }
  // How many engines read a stage's batches, and who was brought them, by stage.
  const std::map<std::string, int>& brought() const { return brought_; }

 private:
  struct Flight {
    FlowItem item;
    double end;
  };

  std::string OpOf(const FlowItem& item) const {
    return item.stage == FlowItem::kWeightSync ? "weight_sync" : plan_.stages[item.stage].what.op;
  }

  void BeginItem(const FlowItem& item) {
    for (const Flight& other : flights_) EXPECT_FALSE(Shares(item, other.item));  // FLOW-2
    const v1::DataflowOp op = RequestOf(plan_, progress_, item);
    if (op.op() == "generate") {
      EXPECT_EQ(taken_, item.step - 1) << "prompts for a step before the one before it has its own";  // FLOW-5
      EXPECT_EQ(item.step, static_cast<int64_t>(versions_.size()) + 1);                               // FLOW-1
      versions_.push_back(op.weight_version());
      EXPECT_GE(op.weight_version(), item.step - 1 - plan_.ahead);  // FLOW-3
    } else if (op.op() == "filter") {
      EXPECT_EQ(op.weight_version(), versions_.at(static_cast<size_t>(item.step) - 1));  // FLOW-5
    } else if (op.op() != "weight_sync" && plan_.stages[item.stage].pool == 0) {
      EXPECT_EQ(item.step, progress_.steps_done + 1);  // FLOW-1
    }
    for (const v1::BatchReference& input : op.inputs()) ++brought_[absl::StrCat(input.stage(), ">", op.stage())];
    log_.push_back(absl::StrCat(op.stage(), item.step));
    Begin(plan_, item, &progress_);
    const double duration = seconds.at(op.op());
    if (item.stage == FlowItem::kWeightSync || !plan_.stages[item.stage].what.beside) {
      busy_[item.stage == FlowItem::kWeightSync ? plan_.rollout : plan_.stages[item.stage].pool] += duration;
    }
    flights_.push_back({item, now_ + duration});
  }

  bool Shares(const FlowItem& a, const FlowItem& b) const {
    const auto lanes = [&](const FlowItem& item) -> std::vector<std::pair<size_t, bool>> {
      if (item.stage == FlowItem::kWeightSync) return {{0, false}, {plan_.rollout, false}};
      return {{plan_.stages[item.stage].pool, plan_.stages[item.stage].what.beside}};
    };
    for (const auto& lane : lanes(a)) {
      for (const auto& other : lanes(b)) {
        if (lane == other) return true;
      }
    }
    return false;
  }

  void Land() {
    const auto first = std::min_element(flights_.begin(), flights_.end(),
                                        [](const Flight& a, const Flight& b) { return a.end < b.end; });
    now_ = first->end;
    const FlowItem item = first->item;
    flights_.erase(first);
    if (OpOf(item) == (filters_ ? "filter" : "generate")) taken_ = item.step;
    std::vector<v1::BatchReference> outputs;
    if (item.stage != FlowItem::kWeightSync && plan_.stages[item.stage].readers > 0) {
      outputs.emplace_back().set_stage(plan_.stages[item.stage].what.name);
    }
    Finish(plan_, item, outputs, absl::FromUnixSeconds(0) + absl::Seconds(now_), &progress_);
  }

  const FlowPlan plan_;
  const bool filters_;
  int64_t taken_ = 0;  // steps that have all the prompts they take
  FlowProgress progress_;
  double now_ = 0;
  std::vector<Flight> flights_;
  std::vector<int64_t> versions_;
  std::vector<std::string> log_;
  std::map<size_t, double> busy_;
  std::map<std::string, int> brought_;
};

TEST(StepFlowTest, IndependentStagesOfAStepRunBesideEachOther) {
  Simulation simulation(Colocated());
  simulation.seconds["reward"] = 2;
  simulation.Run(2);
  EXPECT_THAT(simulation.log(), ElementsAre("rollout1", "score1", "old_logprob1", "advantage1", "update1",  //
                                            "rollout2", "score2", "old_logprob2", "advantage2", "update2"));
  // The reward takes no time of its own beside the log-probabilities.
  EXPECT_NEAR(simulation.now(), 2 * (10 + 2 + 0.1 + 6), 1e-9);
  EXPECT_THAT(simulation.versions(), ElementsAre(0, 1));
  EXPECT_THAT(simulation.brought(), IsEmpty());
}

TEST(StepFlowTest, ARewardThatIsToBeAloneIs) {
  v1::JobSpec spec = Colocated();
  spec.set_recipe("dataflow");
  const auto add = [&](const char* name, const char* op, std::vector<std::string> inputs) {
    v1::StageSpec* stage = spec.add_dataflow();
    stage->set_stage(name);
    stage->set_op(op);
    for (const std::string& input : inputs) stage->add_inputs(input);
    return stage;
  };
  // In another order than that of their dependencies.
  add("learn", "update", {"adv"});
  add("adv", "advantage", {"judge", "old"});
  add("judge", "reward", {"answers"})->set_sync(true);
  add("old", "logprob", {"answers"});
  add("answers", "generate", {});
  Simulation simulation(spec);
  simulation.Run(1);
  EXPECT_THAT(simulation.log(), ElementsAre("answers1", "judge1", "old1", "adv1", "learn1"));
  EXPECT_NEAR(simulation.now(), 10 + 1 + 2 + 0.1 + 6, 1e-9);
}

TEST(StepFlowTest, SynchronousPoolsTakeTurns) {
  Simulation simulation(Separate("sync"));
  EXPECT_EQ(simulation.plan().pools[0].name, "train");
  EXPECT_EQ(simulation.plan().rollout, 1u);
  EXPECT_EQ(simulation.plan().stages[0].readers, 1) << "the one rank that trains";
  EXPECT_THAT(RanksOf(simulation.plan(), {1, 0}), ElementsAre(1, 2));
  EXPECT_THAT(RanksOf(simulation.plan(), {1, 4}), ElementsAre(0));
  EXPECT_THAT(RanksOf(simulation.plan(), {1, FlowItem::kWeightSync}), ElementsAre(0, 1, 2));
  simulation.Run(2);
  EXPECT_THAT(simulation.log(),
              ElementsAre("rollout1", "score1", "old_logprob1", "advantage1", "update1", "weight_sync1", "rollout2",
                          "score2", "old_logprob2", "advantage2", "update2"));
  EXPECT_THAT(simulation.versions(), ElementsAre(0, 1));
  // Each result comes to the pool that trains once.
  EXPECT_EQ(simulation.brought(), (std::map<std::string, int>{{"rollout>old_logprob", 2}, {"score>advantage", 2}}));
}

TEST(StepFlowTest, OneStepOffGeneratesWhileItTrains) {  // FLOW-3
  for (const double update : {6.0, 1.0, 30.0}) {
    for (const double reward : {0.5, 25.0}) {
      Simulation simulation(Separate("one_step_off"));
      simulation.seconds["update"] = update;
      simulation.seconds["reward"] = reward;
      simulation.Run(6);
      EXPECT_THAT(simulation.versions(), ElementsAre(0, 0, 1, 2, 3, 4)) << update << " " << reward;
    }
  }
}

TEST(StepFlowTest, ASlowRewardKeepsNobodyIdle) {
  // Generation and a reward that takes as long overlap, and so does training.
  Simulation off(Separate("async", 3)), sync(Separate("sync"));
  for (Simulation* simulation : {&off, &sync}) {
    simulation->seconds["reward"] = 9;
    simulation->Run(60);
  }
  // What is left are the beginning, the end, and waits for an update to end before weights move.
  EXPECT_GT(off.busy(1) / off.now(), 0.85) << "the pool that generates is busy";
  EXPECT_LT(sync.busy(1) / sync.now(), 0.45);
  EXPECT_LT(off.now(), 0.5 * sync.now());
}

TEST(StepFlowTest, StalenessIsBounded) {  // FLOW-3
  for (const int64_t bound : {1, 2, 5}) {
    for (const double generate : {0.2, 3.0, 40.0}) {
      Simulation simulation(Separate("async", bound));
      simulation.seconds["generate"] = generate;
      simulation.Run(12);
      int64_t most = 0;
      for (size_t i = 0; i < simulation.versions().size(); ++i) {
        most = std::max(most, static_cast<int64_t>(i) - simulation.versions()[i]);
      }
      EXPECT_LE(most, bound);
      if (generate < 1) {
        EXPECT_EQ(most, bound) << "fast generation goes as far ahead as it may";
      }
      // Where training waits for answers, they are of the newest weights there were: those of before the step.
      if (generate > 30) {
        EXPECT_LE(most, 1);
      }
    }
  }
}

TEST(StepFlowTest, EverythingStandsStillAtACheckpoint) {  // FLOW-4
  Simulation simulation(Separate("one_step_off"));
  simulation.checkpoint_every = 3;
  simulation.Run(7);
  EXPECT_THAT(simulation.versions(), ElementsAre(0, 0, 1, 3, 3, 4, 6));
  const auto& log = simulation.log();
  const auto place = [&](const std::string& name) { return std::find(log.begin(), log.end(), name) - log.begin(); };
  EXPECT_LT(place("update3"), place("rollout4"));
  EXPECT_LT(place("rollout3"), place("update2"));
}

TEST(StepFlowTest, AReferenceOnAPoolOfItsOwnReadsAndIsRead) {
  v1::JobSpec spec = Separate("sync");
  spec.mutable_trainer()->set_n_gpus_per_node(4);
  spec.mutable_actor()->set_use_kl_loss(true);
  v1::PoolSpec* pool = spec.add_pools();
  pool->set_pool("compare");
  pool->set_ranks(1);
  pool->add_roles("ref");
  Simulation simulation(spec);
  simulation.seconds["ref_logprob"] = 1;
  simulation.Run(1);
  EXPECT_EQ(simulation.plan().stages[0].readers, 2) << "a rank that trains and one that compares";
  EXPECT_EQ(simulation.brought(), (std::map<std::string, int>{{"rollout>old_logprob", 1},
                                                              {"rollout>ref_logprob", 1},
                                                              {"score>advantage", 1},
                                                              {"ref_logprob>advantage", 1}}));
}

TEST(StepFlowTest, SeveralStagesScoreAndEachIsBrought) {
  v1::JobSpec spec = Separate("sync");
  spec.set_recipe("dataflow");
  const auto add = [&](const std::string& stage, const std::string& op, const std::vector<std::string>& inputs) {
    v1::StageSpec* added = spec.add_dataflow();
    added->set_stage(stage);
    added->set_op(op);
    for (const std::string& input : inputs) added->add_inputs(input);
    return added;
  };
  add("rollout", "generate", {});
  add("right", "reward", {"rollout"})->mutable_reward()->set_kind("gsm8k");
  v1::RewardSpec* liked = add("liked", "reward", {"rollout"})->mutable_reward();
  liked->set_kind("model");
  (*liked->mutable_options()->mutable_fields())["path"].set_string_value("/rm");
  add("advantage", "advantage", {"right", "liked"});
  add("update", "update", {"advantage"});
  Simulation simulation(spec);
  simulation.Run(1);
  EXPECT_EQ(simulation.brought(),
            (std::map<std::string, int>{{"rollout>advantage", 1}, {"right>advantage", 1}, {"liked>advantage", 1}}));
  EXPECT_NEAR(simulation.now(), 10 + 1 + 0.1 + 6, 1e-9) << "the rule scores beside the model";
}

v1::JobSpec Filtered(v1::JobSpec spec) {
  spec.mutable_algorithm()->mutable_filter_groups()->set_enable(true);
  return spec;
}

TEST(StepFlowTest, WhatAFilterLeavesIsAllThatOtherPoolsAreBrought) {
  Simulation simulation(Filtered(Separate("sync")));
  simulation.Run(2);
  EXPECT_EQ(simulation.brought(), (std::map<std::string, int>{{"filter>old_logprob", 2}}));
  EXPECT_THAT(simulation.log(),
              ElementsAre("rollout1", "score1", "filter1", "old_logprob1", "advantage1", "update1", "weight_sync1",
                          "rollout2", "score2", "filter2", "old_logprob2", "advantage2", "update2"));
}

TEST(StepFlowTest, AStepsFurtherAnswersAreOfTheSameWeights) {  // FLOW-3, FLOW-5
  for (const double filter : {0.1, 4.0, 30.0}) {
    for (const double update : {1.0, 6.0, 40.0}) {
      Simulation off(Filtered(Separate("one_step_off")));
      off.seconds["filter"] = filter;
      off.seconds["update"] = update;
      off.Run(5);
      EXPECT_THAT(off.versions(), ElementsAre(0, 0, 1, 2, 3));
      Simulation async(Filtered(Separate("async", 3)));
      async.seconds["filter"] = filter;
      async.seconds["update"] = update;
      async.checkpoint_every = 4;
      async.Run(9);
      EXPECT_EQ(async.versions().size(), 9u);
    }
  }
}

TEST(StepFlowTest, AStageHasWaitedSinceItsInputs) {
  const FlowPlan plan = MakeFlowPlan(Colocated());
  FlowProgress progress;
  const auto at = [](int64_t seconds) { return absl::FromUnixSeconds(seconds); };
  Begin(plan, {1, 0}, &progress);
  Finish(plan, {1, 0}, {}, at(5), &progress);
  EXPECT_EQ(ReadySince(plan, progress, {1, 1}, at(9)), at(5));
  EXPECT_EQ(ReadySince(plan, progress, {2, 0}, at(9)), at(9));
}

}  // namespace
}  // namespace sluice::controller
