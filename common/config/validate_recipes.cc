#include "common/config/validate_recipes.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/config/dataflow.h"
#include "common/config/preference.h"
#include "common/config/recipes.h"
#include "common/config/rewards_from_spec.h"
#include "common/config/schedule_from_spec.h"

namespace sluice {
namespace {

using Errors = std::vector<ConfigError>;

void Add(Errors* errors, const std::string& path, const std::string& message, std::vector<std::string> also = {}) {
  errors->push_back({"", 0, path, message, std::move(also)});
}

void CheckPolicy(const v1::JobSpec& spec, Errors* errors) {
  if (!IsPolicyRecipe(spec.recipe())) return;
  const v1::DataSpec& data = spec.data();
  if (data.format() != "auto" && data.format() != "gsm8k") {
    Add(errors, "data.format",
        absl::StrCat(data.format(),
                     " does not tell what a prompt is; use auto (a column data.prompt_key, or question "
                     "and answer) or gsm8k"),
        {"recipe"});
  }
  const int64_t longest = data.max_prompt_length() + data.max_response_length();
  if (longest > data.max_token_len_per_gpu()) {
    Add(errors, "data.max_token_len_per_gpu",
        absl::StrCat("a prompt of data.max_prompt_length ", data.max_prompt_length(),
                     " tokens and an answer of data.max_response_length ", data.max_response_length(),
                     " do not fit into a micro-batch of ", data.max_token_len_per_gpu(), "; raise it to ", longest),
        {"data.max_prompt_length", "data.max_response_length"});
  }
  if (spec.algorithm().adv_estimator() == "grpo_passk" && spec.rollout().n() < 2) {
    Add(errors, "rollout.n", "algorithm.adv_estimator grpo_passk compares the two best answers of a prompt: at least 2",
        {"algorithm.adv_estimator"});
  }
  if (FiltersGroups(spec) && (spec.rollout().n() < 2 || !JudgesAnswers(spec))) {
    Add(errors, "algorithm.filter_groups.enable",
        spec.rollout().n() < 2
            ? "leaves out groups whose answers are all equally good, and a group of rollout.n 1 answer always is one"
            : "leaves out groups whose answers are all equally good, and reward none tells no answers apart",
        {"rollout.n", "reward.kind"});
  }
  const v1::PolicyLossSpec& loss = spec.actor().policy_loss();
  if (loss.loss_mode() == "clip_cov" && loss.clip_cov_lb() >= loss.clip_cov_ub()) {
    Add(errors, "actor.policy_loss.clip_cov_lb",
        absl::StrCat(loss.clip_cov_lb(), " is not below actor.policy_loss.clip_cov_ub ", loss.clip_cov_ub(),
                     ": no covariance lies between them"),
        {"actor.policy_loss.clip_cov_ub", "actor.policy_loss.loss_mode"});
  }
  if (spec.algorithm().adv_estimator() == "gdpo" && spec.algorithm().use_kl_in_reward()) {
    Add(errors, "algorithm.use_kl_in_reward",
        "cannot be with algorithm.adv_estimator gdpo, which takes each reward by itself; use actor.use_kl_loss",
        {"algorithm.adv_estimator"});
  }
  if (spec.actor().policy_loss().loss_mode() == "dro" && spec.actor().policy_loss().dro_beta() == 0) {
    Add(errors, "actor.policy_loss.dro_beta", "is needed by actor.policy_loss.loss_mode dro: a number above 0",
        {"actor.policy_loss.loss_mode"});
  }
  for (const RewardStage& stage : RewardStagesOf(spec)) {
    const auto rewards = RewardsOfStage(stage);
    if (rewards.ok()) continue;
    const std::string message(rewards.status().message());
    const size_t colon = message.find(": ");
    Add(errors, message.substr(0, colon), message.substr(colon + 2));
  }
  const int64_t cache = spec.rollout().kv_cache_tokens();
  if (cache > 0 && cache < longest) {
    Add(errors, "rollout.kv_cache_tokens",
        absl::StrCat(cache, " tokens do not hold one answer with its prompt, ", longest,
                     " tokens; raise it, or 0 to have it chosen"),
        {"data.max_prompt_length", "data.max_response_length"});
  }
}

void CheckReference(const v1::JobSpec& spec, Errors* errors) {
  const RecipeKind kind = KindOfRecipe(spec.recipe());
  if (kind == RecipeKind::kText) return;
  if ((spec.recipe() == "distillation" || kind == RecipeKind::kDistillation) && spec.reference().path().empty()) {
    Add(errors, "reference.path", absl::StrCat("is needed by recipe ", spec.recipe(), ": the folder of the teacher"),
        {"recipe"});
  }
  if (spec.reference().path().empty() || NeedsReference(spec) || spec.engine().forward_only()) return;
  Add(errors, "reference.path",
      kind == RecipeKind::kPreference
          ? absl::StrCat("has no effect with preference.loss_type ", spec.preference().loss_type(),
                         ", which compares with no other model")
          : "has no effect without actor.use_kl_loss or algorithm.use_kl_in_reward",
      {"preference.loss_type", "actor.use_kl_loss", "algorithm.use_kl_in_reward"});
}

void CheckCritic(const v1::JobSpec& spec, std::optional<int64_t> total_steps, Errors* errors) {
  if (!IsPolicyRecipe(spec.recipe())) return;
  if (!NeedsCritic(spec)) {
    const std::string without = absl::StrCat("has no effect with algorithm.adv_estimator ",
                                             spec.algorithm().adv_estimator(), ", which needs no critic; gae does");
    if (!spec.critic().path().empty()) Add(errors, "critic.path", without, {"algorithm.adv_estimator"});
    if (spec.trainer().critic_warmup() > 0) {
      Add(errors, "trainer.critic_warmup", without, {"algorithm.adv_estimator"});
    }
    return;
  }
  if (total_steps && spec.trainer().critic_warmup() > *total_steps) {
    Add(errors, "trainer.critic_warmup",
        absl::StrCat("the policy would learn from step ", spec.trainer().critic_warmup(), " on, and the run has ",
                     *total_steps),
        {"trainer.total_training_steps", "trainer.total_epochs", "data.train_batch_size"});
  }
  const auto schedule = Schedule::Create(ScheduleFromSpec(CriticOptim(spec)), total_steps.value_or(kLongRun));
  if (schedule.ok() || !spec.critic().optim().has_lr_warmup_steps() || (total_steps && *total_steps < 1)) return;
  Add(errors, "critic.optim.lr_warmup_steps", std::string(schedule.status().message()),
      {"trainer.total_training_steps", "optim.lr_scheduler_type", "optim.lr_wsd_decay_steps"});
}

void CheckPreference(const v1::JobSpec& spec, Errors* errors) {
  if (!IsPreferenceRecipe(spec.recipe())) return;
  const v1::DataSpec& data = spec.data();
  const bool pairs = LearnsFromPairs(spec);
  if (data.format() != "auto") {
    Add(errors, "data.format",
        absl::StrCat(data.format(), " has no better and worse answers; use auto (columns ",
                     pairs ? "data.prompt_key, data.chosen_key and data.rejected_key)"
                           : "data.prompt_key, data.response_key and data.label_key)"),
        {"recipe"});
  }
  if (data.truncation() == "middle") {
    Add(errors, "data.truncation",
        "middle cannot cut a prompt with its answer; use left (the prompt's start), right (the answer's end) or error");
  }
  const int64_t longest = SequencesPerRow(spec) * data.max_length();
  if (longest > data.max_token_len_per_gpu()) {
    Add(errors, "data.max_length",
        absl::StrCat(pairs ? "a pair of two answers" : "an answer", " of ", data.max_length(),
                     " tokens with the prompt does not fit into a micro-batch of data.max_token_len_per_gpu ",
                     data.max_token_len_per_gpu(), "; lower the first or raise the second to ", longest),
        {"data.max_token_len_per_gpu", "preference.loss_type"});
  }
  if (!pairs && data.train_batch_size() < 2) {
    Add(errors, "data.train_batch_size",
        "kto compares each answer with those to other prompts of the same step: at least 2", {"preference.loss_type"});
  }
}

void CheckDistillation(const v1::JobSpec& spec, Errors* errors) {
  if (KindOfRecipe(spec.recipe()) != RecipeKind::kDistillation || spec.distillation().kd_ratio() > 0) return;
  Add(errors, "distillation.kd_ratio", "0 leaves the teacher without a part in the loss: that is recipe sft",
      {"recipe"});
}

}  // namespace

void AddRecipeErrors(const v1::JobSpec& spec, std::optional<int64_t> total_steps, std::vector<ConfigError>* errors) {
  CheckPolicy(spec, errors);
  CheckReference(spec, errors);
  CheckCritic(spec, total_steps, errors);
  CheckPreference(spec, errors);
  CheckDistillation(spec, errors);
}

}  // namespace sluice
