#include "common/config/dataflow.h"

#include <algorithm>

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

int64_t KvCacheTokens(const v1::JobSpec& spec) {
  constexpr int64_t kMost = 131'072;
  if (spec.rollout().kv_cache_tokens() > 0) return spec.rollout().kv_cache_tokens();
  const int64_t longest = spec.data().max_prompt_length() + spec.data().max_response_length();
  return std::max(longest, std::min(kMost, spec.rollout().max_num_seqs() * longest));
}

bool ComparesWithAnother(const v1::JobSpec& spec) { return NeedsReference(spec) && !spec.reference().path().empty(); }

std::vector<DataflowStage> DataflowOf(const v1::JobSpec& spec) {
  if (!IsPolicyRecipe(spec.recipe())) return {};
  std::vector<DataflowStage> stages = {{"rollout", "generate", "actor", {}},
                                       {"score", "reward", RewardModelsOf(spec).empty() ? "" : "reward", {"rollout"}}};
  // What the trainer's passes read: the answers that are left, where some are left out.
  std::string answers = "rollout", scores = "score";
  if (FiltersGroups(spec)) {
    stages.push_back({"filter", "filter", "actor", {"score"}});
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

}  // namespace sluice
