#include "engine/roles/policy_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/config/dataflow.h"
#include "common/config/rewards_from_spec.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/rollout/cache_size.h"

namespace sluice::engine {
namespace {

// `parsed`, or an error that names the key: the table's choices and the parsers' names are the same lists.
template <typename T>
absl::StatusOr<T> Known(const std::optional<T>& parsed, const char* key, const std::string& value) {
  if (parsed.has_value()) return *parsed;
  return absl::InvalidArgumentError(absl::StrCat(key, ": unknown value ", value));
}

template <typename Spec>
SamplingParams CommonSampling(const v1::JobSpec& spec, const Spec& sampling) {
  SamplingParams params;
  params.temperature = sampling.temperature();
  params.top_k = sampling.top_k();
  params.top_p = sampling.top_p();
  params.max_new_tokens = spec.data().max_response_length();
  params.seed = static_cast<uint64_t>(spec.trainer().seed());
  params.ignore_eos = spec.rollout().ignore_eos();
  params.stop.assign(spec.rollout().stop().begin(), spec.rollout().stop().end());
  return params;
}

absl::StatusOr<PromptDatasetOptions> CommonPromptOptions(const v1::JobSpec& spec) {
  const v1::DataSpec& data = spec.data();
  PromptDatasetOptions options;
  options.format.format = data.format();
  options.format.prompt_key = data.prompt_key();
  options.format.reward_fn_key = data.reward_fn_key();
  options.format.ground_truth_key = data.ground_truth_key();
  options.format.tools_key = data.tools_key();
  options.format.enable_thinking_key = data.enable_thinking_key();
  options.format.system_prompt = data.system_prompt();
  options.max_prompt_length = data.max_prompt_length();
  ASSIGN_OR_RETURN(options.truncation, ParseTruncation(data.truncation()));
  options.filter_overlong_prompts = data.filter_overlong_prompts();
  options.threads = data.num_workers();
  options.seed = static_cast<uint64_t>(spec.trainer().seed());
  return options;
}

}  // namespace

absl::StatusOr<PolicyOptions> PolicyOptionsOf(const v1::JobSpec& spec) {
  const v1::AlgorithmSpec& algorithm = spec.algorithm();
  const v1::ActorSpec& actor = spec.actor();
  PolicyOptions options;
  ASSIGN_OR_RETURN(options.advantage.estimator, Known(ParseAdvantageEstimator(algorithm.adv_estimator()),
                                                      "algorithm.adv_estimator", algorithm.adv_estimator()));
  options.advantage.gamma = algorithm.gamma();
  options.advantage.lam = algorithm.lam();
  options.advantage.norm_adv_by_std_in_grpo = algorithm.norm_adv_by_std_in_grpo();
  if (InfoOf(options.advantage.estimator).needs_components) {
    for (const RewardStage& stage : RewardStagesOf(spec)) {
      ASSIGN_OR_RETURN(const std::vector<RewardSpec> rewards, RewardsOfStage(stage));
      for (const RewardSpec& reward : rewards) options.advantage.component_weight.push_back(reward.weight);
    }
  }
  ASSIGN_OR_RETURN(options.kl_penalty,
                   Known(ParseKlType(algorithm.kl_penalty()), "algorithm.kl_penalty", algorithm.kl_penalty()));
  const v1::KlControlSpec& control = algorithm.kl_ctrl();
  options.kl_controller = {control.type() == "adaptive" ? KlControllerType::kAdaptive : KlControllerType::kFixed,
                           control.kl_coef(), control.target_kl(), control.horizon()};
  RETURN_IF_ERROR(Validate(options.kl_controller));
  const v1::RolloutCorrectionSpec& correction = algorithm.rollout_correction();
  ASSIGN_OR_RETURN(options.correction.importance,
                   Known(ParseRolloutImportance(correction.rollout_is()), "algorithm.rollout_correction.rollout_is",
                         correction.rollout_is()));
  auto threshold = ParseImportanceThreshold(correction.rollout_is_threshold());
  RETURN_IF_ERROR(Annotate(threshold.status(), "algorithm.rollout_correction"));
  options.correction.threshold = *threshold;
  options.correction.batch_normalize = correction.rollout_is_batch_normalize();
  ASSIGN_OR_RETURN(options.correction.rejection,
                   ParseRejection(correction.rollout_rs(), correction.rollout_rs_threshold()));

  if (algorithm.filter_groups().enable()) options.filter_metric = algorithm.filter_groups().metric();

  PolicyLossOptions& loss = options.loss;
  ASSIGN_OR_RETURN(loss.mode, Known(ParsePolicyLossMode(actor.policy_loss().loss_mode()), "actor.policy_loss.loss_mode",
                                    actor.policy_loss().loss_mode()));
  loss.clip_ratio_low = actor.has_clip_ratio_low() ? actor.clip_ratio_low() : actor.clip_ratio();
  loss.clip_ratio_high = actor.has_clip_ratio_high() ? actor.clip_ratio_high() : actor.clip_ratio();
  loss.clip_ratio_c = actor.clip_ratio_c();
  loss.tau_pos = actor.tau_pos();
  loss.tau_neg = actor.tau_neg();
  loss.dro_beta = actor.policy_loss().dro_beta();
  const v1::PolicyLossSpec& policy_loss = actor.policy_loss();
  loss.ppo_kl_coef = policy_loss.ppo_kl_coef();
  options.selection = {.mode = loss.mode,
                       .clip_cov = {.ratio = policy_loss.clip_cov_ratio(),
                                    .lower = policy_loss.clip_cov_lb(),
                                    .upper = policy_loss.clip_cov_ub(),
                                    .clip_ratio_low = loss.clip_ratio_low,
                                    .clip_ratio_high = loss.clip_ratio_high},
                       .kl_cov_ratio = policy_loss.kl_cov_ratio()};
  loss.entropy_coeff = actor.entropy_coeff();
  loss.use_kl_loss = actor.use_kl_loss();
  loss.kl_loss_coef = actor.kl_loss_coef();
  ASSIGN_OR_RETURN(loss.kl_loss_type,
                   Known(ParseKlType(actor.kl_loss_type()), "actor.kl_loss_type", actor.kl_loss_type()));
  ASSIGN_OR_RETURN(loss.aggregation,
                   Known(ParseLossAggregation(actor.loss_agg_mode()), "actor.loss_agg_mode", actor.loss_agg_mode()));
  RETURN_IF_ERROR(Validate(loss));
  options.loss_scale_factor = LossScaleFactor(spec);

  options.sampling = CommonSampling(spec, spec.rollout());
  options.sampling.min_p = spec.rollout().min_p();
  options.sampling.repetition_penalty = spec.rollout().repetition_penalty();
  options.validation_sampling = CommonSampling(spec, spec.rollout().val_kwargs());
  RETURN_IF_ERROR(Annotate(Validate(options.sampling), "rollout"));
  RETURN_IF_ERROR(Annotate(Validate(options.validation_sampling), "rollout.val_kwargs"));
  options.temperature = options.sampling.temperature > 0 ? static_cast<float>(options.sampling.temperature) : 1.0f;
  return options;
}

absl::StatusOr<PromptDatasetOptions> TrainPromptOptions(const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(PromptDatasetOptions options, CommonPromptOptions(spec));
  options.files.assign(spec.data().train_files().begin(), spec.data().train_files().end());
  options.max_rows = spec.data().train_max_samples();
  options.batch_size = spec.data().train_batch_size();
  options.shuffle = spec.data().shuffle();
  return options;
}

absl::StatusOr<PromptDatasetOptions> ValidationPromptOptions(const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(PromptDatasetOptions options, CommonPromptOptions(spec));
  options.files.assign(spec.data().val_files().begin(), spec.data().val_files().end());
  options.files_key = "data.val_files";
  options.max_rows = spec.data().val_max_samples();
  options.shuffle = false;
  return options;
}

double LossScaleFactor(const v1::JobSpec& spec) {
  return spec.actor().has_loss_scale_factor() ? spec.actor().loss_scale_factor()
                                              : static_cast<double>(spec.data().max_response_length());
}

RolloutOptions RolloutOptionsOf(const v1::JobSpec& spec, const Parameters& parameters,
                                std::optional<int64_t> free_bytes) {
  RolloutOptions options;
  options.max_model_len = spec.data().max_prompt_length() + spec.data().max_response_length();
  options.cache_tokens = KvCacheTokens(spec, free_bytes.has_value());
  options.max_num_batched_tokens = spec.rollout().max_num_batched_tokens();
  options.max_num_seqs = std::min(spec.rollout().max_num_seqs(), options.max_num_batched_tokens);
  if (!free_bytes.has_value() || spec.rollout().kv_cache_tokens() > 0) return options;
  const double room = spec.rollout().gpu_memory_utilization() * static_cast<double>(*free_bytes);
  options.cache_tokens = CacheTokensWithin(static_cast<int64_t>(room), options, parameters);
  return options;
}

}  // namespace sluice::engine
