#include "common/config/idle_keys.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/config/dataflow.h"
#include "common/config/field_value.h"
#include "common/config/pools.h"
#include "common/config/schema.h"
#include "common/config/yaml_writer.h"

namespace sluice {
namespace {

using v1::JobSpec;

bool IsOneOf(const std::string& value, std::initializer_list<std::string_view> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

const std::string& Estimator(const JobSpec& spec) { return spec.algorithm().adv_estimator(); }
const std::string& LossMode(const JobSpec& spec) { return spec.actor().policy_loss().loss_mode(); }
const std::string& LossType(const JobSpec& spec) { return spec.preference().loss_type(); }

bool Clips(const JobSpec& spec) {
  return IsOneOf(LossMode(spec), {"vanilla", "gspo", "cispo", "geo_mean", "clip_cov"});
}

constexpr char kEstimator[] = "algorithm.adv_estimator";
constexpr char kLossMode[] = "actor.policy_loss.loss_mode";
constexpr char kLossType[] = "preference.loss_type";
constexpr auto kPolicy = RecipeKind::kPolicy;
constexpr auto kPreference = RecipeKind::kPreference;

const std::vector<IdleRule>& Rules() {
  static const auto* const rules = new std::vector<IdleRule>{
      {kPolicy,
       {"algorithm.gamma"},
       [](const JobSpec& s) {
         return IsOneOf(Estimator(s), {"gae", "reinforce_plus_plus"});
       },
       kEstimator},
      {kPolicy, {"algorithm.lam"}, [](const JobSpec& s) { return Estimator(s) == "gae"; }, kEstimator},
      {kPolicy,
       {"algorithm.norm_adv_by_std_in_grpo"},
       [](const JobSpec& s) {
         return IsOneOf(Estimator(s), {"grpo", "grpo_passk", "gdpo"});
       },
       kEstimator},
      {kPolicy,
       {"critic.cliprange_value", "critic.ppo_mini_batch_size", "critic.ppo_epochs", "critic.loss_agg_mode",
        "critic.optim.lr", "critic.optim.weight_decay", "critic.optim.clip_grad", "critic.optim.lr_warmup_steps"},
       NeedsCritic,
       kEstimator},
      {kPolicy,
       {"algorithm.kl_penalty", "algorithm.kl_ctrl.type", "algorithm.kl_ctrl.kl_coef", "algorithm.kl_ctrl.horizon",
        "algorithm.kl_ctrl.target_kl"},
       [](const JobSpec& s) { return s.algorithm().use_kl_in_reward(); },
       "algorithm.use_kl_in_reward"},
      {kPolicy,
       {"algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.target_kl"},
       [](const JobSpec& s) { return s.algorithm().kl_ctrl().type() == "adaptive"; },
       "algorithm.kl_ctrl.type"},
      {kPolicy,
       {"algorithm.filter_groups.metric", "algorithm.filter_groups.max_num_gen_batches"},
       [](const JobSpec& s) { return s.algorithm().filter_groups().enable(); },
       "algorithm.filter_groups.enable"},
      {kPolicy,
       {"algorithm.rollout_correction.rollout_is_threshold", "algorithm.rollout_correction.rollout_is_batch_normalize"},
       [](const JobSpec& s) { return s.algorithm().rollout_correction().rollout_is() != "none"; },
       "algorithm.rollout_correction.rollout_is"},
      {kPolicy,
       {"algorithm.rollout_correction.rollout_rs_threshold"},
       [](const JobSpec& s) { return s.algorithm().rollout_correction().rollout_rs() != "none"; },
       "algorithm.rollout_correction.rollout_rs"},
      {kPolicy,
       {"actor.kl_loss_coef", "actor.kl_loss_type"},
       [](const JobSpec& s) { return s.actor().use_kl_loss(); },
       "actor.use_kl_loss"},
      {kPolicy, {"actor.clip_ratio", "actor.clip_ratio_low", "actor.clip_ratio_high"}, Clips, kLossMode},
      {kPolicy,
       {"actor.clip_ratio"},
       [](const JobSpec& s) { return !s.actor().has_clip_ratio_low() || !s.actor().has_clip_ratio_high(); },
       "actor.clip_ratio_high"},
      {kPolicy, {"actor.clip_ratio_c"}, [](const JobSpec& s) { return LossMode(s) == "vanilla"; }, kLossMode},
      {kPolicy, {"actor.tau_pos", "actor.tau_neg"}, [](const JobSpec& s) { return LossMode(s) == "sapo"; }, kLossMode},
      {kPolicy, {"actor.policy_loss.dro_beta"}, [](const JobSpec& s) { return LossMode(s) == "dro"; }, kLossMode},
      {kPolicy,
       {"actor.policy_loss.clip_cov_ratio", "actor.policy_loss.clip_cov_lb", "actor.policy_loss.clip_cov_ub"},
       [](const JobSpec& s) { return LossMode(s) == "clip_cov"; },
       kLossMode},
      {kPolicy,
       {"actor.policy_loss.kl_cov_ratio", "actor.policy_loss.ppo_kl_coef"},
       [](const JobSpec& s) { return LossMode(s) == "kl_cov"; },
       kLossMode},
      {kPolicy,
       {"actor.loss_scale_factor"},
       [](const JobSpec& s) {
         return s.actor().loss_agg_mode() == "seq-mean-token-sum-norm" ||
                (NeedsCritic(s) && s.critic().loss_agg_mode() == "seq-mean-token-sum-norm");
       },
       "actor.loss_agg_mode"},
      {kPolicy,
       {"rollout.top_k", "rollout.top_p", "rollout.min_p"},
       [](const JobSpec& s) { return s.rollout().temperature() > 0; },
       "rollout.temperature"},
      {kPolicy,
       {"rollout.val_kwargs.n", "rollout.val_kwargs.temperature", "rollout.val_kwargs.top_k",
        "rollout.val_kwargs.top_p"},
       [](const JobSpec& s) { return !s.data().val_files().empty(); },
       "data.val_files"},
      {kPolicy,
       {"rollout.val_kwargs.top_k", "rollout.val_kwargs.top_p"},
       [](const JobSpec& s) { return s.rollout().val_kwargs().temperature() > 0; },
       "rollout.val_kwargs.temperature"},
      {kPolicy,
       {"rollout.gpu_memory_utilization"},
       [](const JobSpec& s) { return s.rollout().kv_cache_tokens() == 0; },
       "rollout.kv_cache_tokens"},
      {kPolicy,
       {"rollout.update_weights_bucket_megabytes"},
       [](const JobSpec& s) { return PoolsOf(s).size() > 1; },
       "pools"},
      {kPolicy,
       {"reward.custom_reward_function.name", "reward.custom_reward_function.reward_kwargs",
        "reward.custom_reward_function.num_workers", "reward.custom_reward_function.timeout_s"},
       [](const JobSpec& s) { return !s.reward().custom_reward_function().path().empty(); },
       "reward.custom_reward_function.path"},
      {kPreference, {"preference.simpo_gamma"}, [](const JobSpec& s) { return LossType(s) == "simpo"; }, kLossType},
      {kPreference,
       {"preference.desirable_weight", "preference.undesirable_weight", "data.label_key"},
       [](const JobSpec& s) { return LossType(s) == "kto"; },
       kLossType},
      {kPreference,
       {"data.chosen_key", "data.rejected_key"},
       [](const JobSpec& s) { return LossType(s) != "kto"; },
       kLossType},
      {kPreference, {"data.margin_key"}, [](const JobSpec& s) { return LossType(s) == "bradley_terry"; }, kLossType},
  };
  return *rules;
}

const google::protobuf::Message& SectionAround(const JobSpec& spec, const std::string& path) {
  const std::string section = path.substr(0, path.rfind('.'));
  for (const Section& candidate : Schema::Get().sections()) {
    if (candidate.path == section) return SectionOf(spec, candidate);
  }
  return spec;
}

// Neither given nor the recipe's; both read as YAML.
bool IsDefault(const JobSpec& spec, const Key& key, const google::protobuf::Message& section) {
  if (HasDefault(key, section)) return true;
  for (const RecipeDefault& value : FindRecipe(spec.recipe())->defaults) {
    if (value.key == key.path && HasValue(key, value.value, section)) return true;
  }
  return false;
}

// "is vanilla", "is empty".
std::string StateOf(const JobSpec& spec, const std::string& path) {
  const Key* key = Schema::Get().Find(path);
  if (key == nullptr) return "are not given";  // a list of maps
  const std::string value = YamlValue(*key, SectionAround(spec, path));
  return value == "[]" || value == "\"\"" ? "is empty" : absl::StrCat("is ", value);
}

}  // namespace

std::span<const IdleRule> IdleRules() { return Rules(); }

std::vector<std::string> IdleKeys(const JobSpec& spec) {
  std::vector<std::string> sentences;
  std::set<std::string_view> said;
  for (const IdleRule& rule : Rules()) {
    if (rule.kind != KindOfRecipe(spec.recipe()) || rule.used(spec)) continue;
    for (const char* path : rule.keys) {
      const Key& key = *Schema::Get().Find(path);
      if (IsDefault(spec, key, SectionAround(spec, path)) || !said.insert(path).second) continue;
      sentences.push_back(absl::StrCat(path, " does nothing: ", rule.decided_by, " ", StateOf(spec, rule.decided_by)));
    }
  }
  return sentences;
}

}  // namespace sluice
