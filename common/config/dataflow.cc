#include "common/config/dataflow.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/config/pools.h"
#include "common/config/preference.h"
#include "common/config/recipes.h"
#include "common/config/rewards_from_spec.h"

namespace sluice {

bool NeedsReference(const v1::JobSpec& spec) {
  switch (KindOfRecipe(spec.recipe())) {
    case RecipeKind::kText:
      return false;
    case RecipeKind::kPolicy:
      return !spec.engine().forward_only() && (spec.algorithm().use_kl_in_reward() || spec.actor().use_kl_loss());
    case RecipeKind::kPreference:
      return ComparesWithReference(spec.preference());
    case RecipeKind::kDistillation:
      return true;
  }
  return false;
}

bool FiltersGroups(const v1::JobSpec& spec) {
  return IsPolicyRecipe(spec.recipe()) && spec.algorithm().filter_groups().enable();
}

bool NeedsCritic(const v1::JobSpec& spec) {
  return IsPolicyRecipe(spec.recipe()) && spec.algorithm().adv_estimator() == "gae";
}

v1::OptimSpec CriticOptim(const v1::JobSpec& spec) {
  const v1::CriticOptimSpec& critic = spec.critic().optim();
  v1::OptimSpec optim = spec.optim();
  optim.set_lr(critic.lr());
  if (critic.has_weight_decay()) {
    optim.set_weight_decay(critic.weight_decay());
    optim.set_wd_incr_style("constant");
    optim.clear_start_weight_decay();
    optim.clear_end_weight_decay();
  }
  if (critic.has_clip_grad()) optim.set_clip_grad(critic.clip_grad());
  if (critic.has_lr_warmup_steps()) optim.set_lr_warmup_steps(critic.lr_warmup_steps());
  return optim;
}

int64_t KvCacheTokens(const v1::JobSpec& spec, bool on_gpu) {
  constexpr int64_t kMostOnCpu = 131'072;
  if (spec.rollout().kv_cache_tokens() > 0) return spec.rollout().kv_cache_tokens();
  const int64_t longest = spec.data().max_prompt_length() + spec.data().max_response_length();
  const int64_t of_all = spec.rollout().max_num_seqs() * longest;
  return std::max(longest, on_gpu ? of_all : std::min(kMostOnCpu, of_all));
}

bool ComparesWithAnother(const v1::JobSpec& spec) { return NeedsReference(spec) && !spec.reference().path().empty(); }

namespace {

std::vector<DataflowStage> StagesOfRecipe(const v1::JobSpec& spec) {
  std::string answers = "rollout", scores = kRewardStageOfRecipes;
  std::vector<DataflowStage> stages = {
      {answers, "generate", "actor", {}},
      {scores, "reward", RewardModelsOf(spec).empty() ? "" : "reward", {answers}},
  };
  // What the trainer's passes read: the answers that are left, where some are left out.
  if (FiltersGroups(spec)) {
    stages.push_back({"filter", "filter", "actor", {scores}});
    answers = scores = "filter";
  }
  stages.push_back({"old_logprob", "logprob", "actor", {answers}});
  std::vector<std::string> judged = {scores, "old_logprob"};
  if (NeedsReference(spec)) {
    stages.push_back({"ref_logprob", "ref_logprob", "ref", {answers}});
    judged.push_back("ref_logprob");
  }
  if (NeedsCritic(spec)) {
    stages.push_back({"values", "values", "critic", {answers}});
    judged.push_back("values");
  }
  stages.push_back({"advantage", "advantage", "", judged});
  std::vector<std::string> before_update = {"advantage"};
  if (NeedsCritic(spec)) {
    stages.push_back({"update_critic", "update_critic", "critic", {"advantage"}});
    before_update.push_back("update_critic");
  }
  stages.push_back({"update", "update", "actor", before_update});
  return stages;
}

// Each after its inputs, else in the order given.
std::vector<DataflowStage> Ordered(std::vector<DataflowStage> stages) {
  std::vector<DataflowStage> ordered;
  std::set<std::string> placed;
  while (!stages.empty()) {
    const auto next = std::find_if(stages.begin(), stages.end(), [&](const DataflowStage& stage) {
      // The update ends the step.
      return (stage.op != "update" || stages.size() == 1) &&
             std::all_of(stage.inputs.begin(), stage.inputs.end(),
                         [&](const std::string& input) { return placed.contains(input); });
    });
    if (next == stages.end()) return ordered;  // a cycle: not a valid list
    placed.insert(next->name);
    ordered.push_back(std::move(*next));
    stages.erase(next);
  }
  return ordered;
}

const Pool& PoolOf(const DataflowStage& stage, const std::vector<Pool>& pools) {
  const bool answers = stage.op == "generate" || stage.op == "reward" || stage.op == "filter";
  if (answers || stage.op == "weight_sync") return RolloutPool(pools);
  return stage.op == "ref_logprob" ? ReferencePool(pools) : ActorPool(pools);
}

// A reward without a model computes in processes and services of its own: it need not hold up the device.
bool RunsBeside(const v1::JobSpec& spec, const DataflowStage& stage) {
  if (stage.op != "reward") return false;
  for (const RewardStage& scoring : RewardStagesOf(spec)) {
    if (scoring.stage == stage.name && HasRewardModel(scoring)) return false;
  }
  for (const v1::StageSpec& listed : spec.dataflow()) {
    if (listed.stage() == stage.name && listed.has_sync()) return !listed.sync();
  }
  return true;
}

}  // namespace

std::vector<DataflowStage> ListedStages(const v1::JobSpec& spec) {
  std::vector<DataflowStage> stages;
  for (const v1::StageSpec& stage : spec.dataflow()) {
    stages.push_back({stage.stage(), stage.op(), stage.model(), {stage.inputs().begin(), stage.inputs().end()}});
  }
  return stages;
}

std::vector<DataflowStage> DataflowOf(const v1::JobSpec& spec) {
  if (!IsPolicyRecipe(spec.recipe())) return {};
  std::vector<DataflowStage> stages = spec.recipe() == "dataflow" ? ListedStages(spec) : StagesOfRecipe(spec);
  // They follow steps, as often as trainer.test_freq and trainer.save_freq say.
  std::erase_if(stages, [](const auto& stage) { return stage.op == "evaluate" || stage.op == "checkpoint"; });
  if (spec.recipe() == "dataflow") stages = Ordered(std::move(stages));
  if (stages.empty()) return stages;
  if (RolloutIsSeparate(spec)) stages.push_back({"weight_sync", "weight_sync", "actor", {stages.back().name}});
  const std::vector<Pool> pools = PoolsOf(spec);
  for (DataflowStage& stage : stages) {
    stage.pool = PoolOf(stage, pools).name;
    stage.beside = RunsBeside(spec, stage);
  }
  return stages;
}

bool HasStage(const v1::JobSpec& spec, const std::string& op) {
  const std::vector<DataflowStage> stages = DataflowOf(spec);
  return std::any_of(stages.begin(), stages.end(), [&](const DataflowStage& stage) { return stage.op == op; });
}

}  // namespace sluice
