#include "common/config/idle_keys.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/job_reader.h"
#include "common/config/schema.h"
#include "common/config/testing/minimal_job.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::sluice::testing::MinimalJob;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using Overrides = std::vector<std::string>;

// A job of the recipe in which `given` alone is not as it is by default.
struct KeyCase {
  std::string recipe;
  std::string given;
  std::string says;  // why it does nothing there
  Overrides used;    // overrides with which it does something
};

std::vector<KeyCase> Cases() {
  const std::string vanilla = "actor.policy_loss.loss_mode is vanilla";
  const std::string estimator = "algorithm.adv_estimator is grpo", sigmoid = "preference.loss_type is sigmoid";
  const Overrides gae = {"algorithm.adv_estimator=gae"}, kl_in_reward = {"algorithm.use_kl_in_reward=true"};
  const auto mode = [](const char* name) { return Overrides{absl::StrCat("actor.policy_loss.loss_mode=", name)}; };
  const Overrides python = {"reward.custom_reward_function.path=r.py"};
  std::vector<KeyCase> cases = {
      {"grpo", "algorithm.gamma=0.9", estimator, gae},
      {"grpo", "algorithm.gamma=0.9", estimator, {"algorithm.adv_estimator=reinforce_plus_plus"}},
      {"remax", "algorithm.gamma=0.9", "algorithm.adv_estimator is remax", gae},
      {"grpo", "algorithm.lam=0.9", estimator, gae},
      {"rloo", "algorithm.norm_adv_by_std_in_grpo=false", "algorithm.adv_estimator is rloo", {"recipe=grpo"}},
      {"grpo", "critic.cliprange_value=0.1", estimator, gae},
      {"grpo", "critic.ppo_mini_batch_size=8", estimator, gae},
      {"grpo", "critic.ppo_epochs=2", estimator, gae},
      {"grpo", "critic.loss_agg_mode=token-sum", estimator, gae},
      {"grpo", "critic.optim.lr=1", estimator, gae},
      {"grpo", "critic.optim.weight_decay=1", estimator, gae},
      {"grpo", "critic.optim.clip_grad=2", estimator, gae},
      {"grpo", "critic.optim.lr_warmup_steps=1", estimator, gae},
      {"grpo", "algorithm.kl_penalty=k3", "algorithm.use_kl_in_reward is false", kl_in_reward},
      {"grpo", "algorithm.kl_ctrl.type=adaptive", "algorithm.use_kl_in_reward is false", kl_in_reward},
      {"grpo", "algorithm.kl_ctrl.kl_coef=0.5", "algorithm.use_kl_in_reward is false", kl_in_reward},
      {"grpo", "algorithm.filter_groups.metric=acc", "algorithm.filter_groups.enable is false", {"recipe=dapo"}},
      {"grpo",
       "algorithm.filter_groups.max_num_gen_batches=3",
       "algorithm.filter_groups.enable is false",
       {"recipe=dapo"}},
      {"grpo",
       "algorithm.rollout_correction.rollout_is_threshold=3",
       "algorithm.rollout_correction.rollout_is is none",
       {"algorithm.rollout_correction.rollout_is=token"}},
      {"grpo",
       "algorithm.rollout_correction.rollout_is_batch_normalize=true",
       "algorithm.rollout_correction.rollout_is is none",
       {"algorithm.rollout_correction.rollout_is=sequence"}},
      {"grpo",
       "algorithm.rollout_correction.rollout_rs_threshold=3",
       "algorithm.rollout_correction.rollout_rs is none",
       {"algorithm.rollout_correction.rollout_rs=token_k3"}},
      {"grpo", "actor.kl_loss_coef=1", "actor.use_kl_loss is false", {"actor.use_kl_loss=true"}},
      {"grpo", "actor.kl_loss_type=k1", "actor.use_kl_loss is false", {"actor.use_kl_loss=true"}},
      {"grpo", "actor.tau_pos=2", vanilla, mode("sapo")},
      {"grpo", "actor.tau_neg=2", vanilla, mode("sapo")},
      {"grpo", "actor.policy_loss.dro_beta=2", vanilla, mode("dro")},
      {"grpo", "actor.policy_loss.clip_cov_ratio=0.5", vanilla, mode("clip_cov")},
      {"grpo", "actor.policy_loss.clip_cov_lb=2", vanilla, mode("clip_cov")},
      {"grpo", "actor.policy_loss.clip_cov_ub=2", vanilla, mode("clip_cov")},
      {"grpo", "actor.policy_loss.kl_cov_ratio=0.5", vanilla, mode("kl_cov")},
      {"grpo", "actor.policy_loss.ppo_kl_coef=2", vanilla, mode("kl_cov")},
      {"gspo", "actor.clip_ratio_c=5", "actor.policy_loss.loss_mode is gspo", mode("vanilla")},
      {"gspo", "actor.clip_ratio=0.3", "actor.clip_ratio_high is 4e-04", {"actor.clip_ratio_high=null", "recipe=grpo"}},
      {"grpo", "actor.loss_scale_factor=9", "actor.loss_agg_mode is token-mean", {"recipe=dr_grpo"}},
      {"grpo",
       "actor.loss_scale_factor=9",
       "actor.loss_agg_mode is token-mean",
       {"recipe=ppo", "critic.loss_agg_mode=seq-mean-token-sum-norm"}},
      {"grpo",
       "rollout.update_weights_bucket_megabytes=9",
       "pools are not given",
       {"pools=[{pool: a, ranks: 1, roles: actor}, {pool: b, ranks: 1, roles: rollout}]", "trainer.n_gpus_per_node=2"}},
      {"grpo",
       "rollout.val_kwargs.top_k=9",
       "rollout.val_kwargs.temperature is 0",
       {"rollout.val_kwargs.temperature=1"}},
      {"grpo",
       "rollout.val_kwargs.top_p=0.5",
       "rollout.val_kwargs.temperature is 0",
       {"rollout.val_kwargs.temperature=1"}},
      {"grpo", "reward.custom_reward_function.name=f", "reward.custom_reward_function.path is empty", python},
      {"grpo", "reward.custom_reward_function.reward_kwargs={a: 1}", "reward.custom_reward_function.path is empty",
       python},
      {"grpo", "reward.custom_reward_function.num_workers=9", "reward.custom_reward_function.path is empty", python},
      {"grpo", "reward.custom_reward_function.timeout_s=9", "reward.custom_reward_function.path is empty", python},
      {"dpo", "preference.simpo_gamma=2", sigmoid, {"recipe=simpo"}},
      {"dpo", "preference.desirable_weight=2", sigmoid, {"recipe=kto"}},
      {"dpo", "preference.undesirable_weight=2", sigmoid, {"recipe=kto"}},
      {"dpo", "data.label_key=l", sigmoid, {"recipe=kto"}},
      {"kto", "data.chosen_key=c", "preference.loss_type is kto", {"recipe=dpo"}},
      {"kto", "data.rejected_key=r", "preference.loss_type is kto", {"recipe=orpo"}},
      {"dpo", "data.margin_key=m", sigmoid, {"recipe=reward_model"}},
  };
  for (const char* key : {"horizon", "target_kl"}) {
    const std::string given = absl::StrCat("algorithm.kl_ctrl.", key, "=3");
    const Overrides both = {"algorithm.use_kl_in_reward=true", "algorithm.kl_ctrl.type=adaptive"};
    cases.push_back({"grpo", given, "algorithm.use_kl_in_reward is false", both});
  }
  for (const char* name : {"sapo", "gpg", "dro", "kl_cov"}) {
    for (const char* key : {"clip_ratio", "clip_ratio_low", "clip_ratio_high"}) {
      for (const char* clips : {"vanilla", "gspo", "cispo", "geo_mean", "clip_cov"}) {
        cases.push_back({"grpo", absl::StrCat("actor.", key, "=0.3"),
                         absl::StrCat("actor.policy_loss.loss_mode is ", name), mode(clips)});
      }
    }
  }
  return cases;
}

// The overrides under which a case's key does nothing.
Overrides Idle(const KeyCase& c) {
  Overrides overrides = {absl::StrCat("recipe=", c.recipe), c.given};
  const std::string mode = "actor.policy_loss.loss_mode";
  if (c.recipe == "grpo" && absl::StartsWith(c.says, mode)) {
    overrides.push_back(absl::StrCat(mode, "=", c.says.substr(c.says.rfind(' ') + 1)));
    if (absl::EndsWith(c.says, "dro")) overrides.push_back("actor.policy_loss.dro_beta=1");
  }
  return overrides;
}

std::string KeyOf(const KeyCase& c) { return c.given.substr(0, c.given.find('=')); }

TEST(IdleKeysTest, EachIsSaidWhereItDoesNothingAndNowhereElse) {
  for (const KeyCase& c : Cases()) {
    SCOPED_TRACE(absl::StrCat(c.recipe, " ", c.given, " ", ::testing::PrintToString(c.used)));
    EXPECT_THAT(IdleKeys(MinimalJob(Idle(c))), ElementsAre(absl::StrCat(KeyOf(c), " does nothing: ", c.says)));
    Overrides used = Idle(c);
    used.insert(used.end(), c.used.begin(), c.used.end());
    if (absl::StrContains(absl::StrJoin(used, " "), "=dro")) used.push_back("actor.policy_loss.dro_beta=1");
    EXPECT_THAT(IdleKeys(MinimalJob(used)), Not(Contains(StartsWith(KeyOf(c) + " "))));
  }
}

TEST(IdleKeysTest, TheSecondReasonIsSaidWhereTheFirstIsNone) {
  EXPECT_THAT(IdleKeys(MinimalJob({"recipe=grpo", "algorithm.use_kl_in_reward=true", "algorithm.kl_ctrl.horizon=3"})),
              ElementsAre("algorithm.kl_ctrl.horizon does nothing: algorithm.kl_ctrl.type is fixed"));
  EXPECT_THAT(IdleKeys(MinimalJob({"recipe=grpo", "rollout.val_kwargs.top_k=3", "data.val_files=[]"})),
              ElementsAre("rollout.val_kwargs.top_k does nothing: data.val_files is empty"));
}

TEST(IdleKeysTest, EveryRuleIsAboutAKeyAndTried) {
  std::set<std::string> tried;
  for (const KeyCase& c : Cases()) tried.insert(KeyOf(c));
  // Those whose idle job is said above or below.
  tried.insert({"rollout.val_kwargs.n", "rollout.val_kwargs.temperature", "rollout.top_k", "rollout.top_p",
                "rollout.min_p", "rollout.gpu_memory_utilization"});
  for (const IdleRule& rule : IdleRules()) {
    for (const char* path : rule.keys) {
      const Key* key = Schema::Get().Find(path);
      ASSERT_NE(key, nullptr) << path;
      EXPECT_TRUE(key->IsFor(rule.kind)) << path;
      EXPECT_TRUE(tried.contains(path)) << path;
    }
  }
}

TEST(IdleKeysTest, GreedyAnswersAndNoValidation) {
  EXPECT_THAT(IdleKeys(MinimalJob({"recipe=grpo", "rollout.temperature=0", "rollout.top_k=3", "rollout.top_p=0.5",
                                   "rollout.min_p=0.1"})),
              ElementsAre("rollout.top_k does nothing: rollout.temperature is 0",
                          "rollout.top_p does nothing: rollout.temperature is 0",
                          "rollout.min_p does nothing: rollout.temperature is 0"));
  EXPECT_THAT(IdleKeys(MinimalJob({"recipe=grpo", "rollout.top_k=3", "rollout.top_p=0.5", "rollout.min_p=0.1"})),
              IsEmpty());
  EXPECT_THAT(IdleKeys(MinimalJob(
                  {"recipe=grpo", "data.val_files=[]", "rollout.val_kwargs.n=3", "rollout.val_kwargs.temperature=1"})),
              ElementsAre("rollout.val_kwargs.n does nothing: data.val_files is empty",
                          "rollout.val_kwargs.temperature does nothing: data.val_files is empty"));
  EXPECT_THAT(IdleKeys(MinimalJob({"recipe=grpo", "rollout.val_kwargs.n=3"})), IsEmpty());
  EXPECT_THAT(
      IdleKeys(MinimalJob({"recipe=grpo", "rollout.kv_cache_tokens=4096", "rollout.gpu_memory_utilization=0.5"})),
      ElementsAre("rollout.gpu_memory_utilization does nothing: rollout.kv_cache_tokens is 4096"));
  EXPECT_THAT(IdleKeys(MinimalJob({"recipe=grpo", "rollout.gpu_memory_utilization=0.5"})), IsEmpty());
}

TEST(IdleKeysTest, WhatTheRecipeSetsIsNotSaid) {
  for (const Recipe& recipe : Recipes()) {
    if (recipe.name == "dataflow") continue;
    Overrides overrides = {"recipe=" + recipe.name};
    if (recipe.name == "distillation" || recipe.name == "knowledge_distillation")
      overrides.push_back("reference.path=/t");
    EXPECT_THAT(IdleKeys(MinimalJob(overrides)), IsEmpty()) << recipe.name;
  }
  // dapo's clip_ratio_c stays 10 with a loss that has no use for it.
  EXPECT_THAT(IdleKeys(MinimalJob({"recipe=dapo", "actor.policy_loss.loss_mode=gpg"})), IsEmpty());
  EXPECT_THAT(IdleKeys(MinimalJob({"recipe=dapo", "actor.policy_loss.loss_mode=gpg", "actor.clip_ratio_c=9"})),
              ElementsAre("actor.clip_ratio_c does nothing: actor.policy_loss.loss_mode is gpg"));
}

}  // namespace
}  // namespace sluice
