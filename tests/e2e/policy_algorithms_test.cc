// The estimators, losses and corrections of reinforcement learning through the real programs, in miniature.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/e2e/policy_job.h"

namespace sluice::testing {
namespace {

TEST(PolicyAlgorithmsTest, EveryRecipeRuns) {
  const PolicyJob job;
  for (const char* recipe : {"grpo", "dr_grpo", "dapo", "gspo", "rloo", "reinforce_plus_plus", "remax", "opo"}) {
    const CommandResult result =
        job.Run(recipe, {std::string("recipe=") + recipe, "trainer.total_training_steps=2", "actor.ppo_epochs=2",
                         "actor.shuffle=true", "actor.ppo_mini_batch_size=3", "trainer.save_freq=-1"});
    ASSERT_EQ(result.exit_code, 0) << recipe << result.output << result.errors;
    const auto steps = job.Steps(recipe);
    ASSERT_EQ(steps.size(), 2u);
    for (const auto& step : steps) EXPECT_TRUE(std::isfinite(step.at("train/loss"))) << recipe;
  }
}

TEST(PolicyAlgorithmsTest, EveryLossAndEstimatorRuns) {
  const PolicyJob job;
  const std::vector<std::vector<std::string>> kinds = {
      {"actor.policy_loss.loss_mode=cispo", "algorithm.rollout_correction.rollout_is=token"},
      {"actor.policy_loss.loss_mode=sapo", "algorithm.adv_estimator=grpo_passk"},
      {"actor.policy_loss.loss_mode=geo_mean", "algorithm.adv_estimator=reinforce_plus_plus_baseline"},
      {"actor.policy_loss.loss_mode=gpg", "algorithm.adv_estimator=gpg", "actor.loss_agg_mode=token-sum"},
      {"actor.policy_loss={loss_mode: dro, dro_beta: 0.1}", "actor.loss_agg_mode=seq-mean-token-sum",
       "algorithm.rollout_correction={rollout_is: sequence, rollout_is_threshold: 0.5_2.0}"},
      {"actor.policy_loss.loss_mode=kl_cov", "algorithm.rollout_correction={rollout_rs: 'token_k1,seq_mean_k3'}"}};
  for (size_t i = 0; i < kinds.size(); ++i) {
    std::vector<std::string> overrides = kinds[i];
    overrides.insert(overrides.end(), {"trainer.total_training_steps=1", "trainer.export_hf_model=false"});
    const std::string run = "kind" + std::to_string(i);
    const CommandResult result = job.Run(run, overrides);
    ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
    EXPECT_TRUE(std::isfinite(job.Steps(run).at(0).at("train/loss")));
  }
}

// Answers of the first step differ in it.
constexpr char kMixedReward[] = "reward={kind: format, options: {pattern: '[a-c]', mode: search}}";

TEST(PolicyAlgorithmsTest, CovarianceLossesSelectOverTheMiniBatch) {
  const PolicyJob job;
  // Of 4 prompts in mini-batches of 2: the second update needs the weights' log-probabilities anew.
  const std::vector<std::vector<std::string>> losses = {
      {"actor.policy_loss={loss_mode: kl_cov, kl_cov_ratio: 0.25, ppo_kl_coef: 10}"},
      {"actor.policy_loss={loss_mode: clip_cov, clip_cov_ratio: 0.1, clip_cov_lb: 0, clip_cov_ub: 100}"}};
  for (size_t i = 0; i < losses.size(); ++i) {
    std::vector<std::string> one = losses[i];
    one.insert(one.end(),
               {kMixedReward, "actor.ppo_mini_batch_size=2", "optim.lr=2e-2", "trainer.export_hf_model=false"});
    std::vector<std::string> two = one;
    two.push_back("trainer.n_gpus_per_node=2");
    const std::string run = "one" + std::to_string(i), ranks = "two" + std::to_string(i);
    const CommandResult first = job.Run(run, one), second = job.Run(ranks, two);
    ASSERT_EQ(first.exit_code, 0) << first.output << first.errors;
    ASSERT_EQ(second.exit_code, 0) << second.output << second.errors;
    const auto a = job.Steps(run), b = job.Steps(ranks);
    EXPECT_NEAR(a[0].at("actor/selected_tokens"), i == 0 ? 0.25 : 0.1, 0.03);
    for (size_t s = 0; s < a.size(); ++s) {
      EXPECT_EQ(a[s].at("actor/selected_tokens"), b[s].at("actor/selected_tokens"));
      EXPECT_NEAR(a[s].at("train/loss"), b[s].at("train/loss"), 1e-4);
      EXPECT_NEAR(a[s].at("train/grad_norm"), b[s].at("train/grad_norm"), 1e-3);
    }
  }
  // What is selected changes the loss.
  const CommandResult none =
      job.Run("none", {"actor.policy_loss={loss_mode: kl_cov, kl_cov_ratio: 0, ppo_kl_coef: 10}", kMixedReward,
                       "actor.ppo_mini_batch_size=2", "optim.lr=2e-2", "trainer.export_hf_model=false"});
  ASSERT_EQ(none.exit_code, 0) << none.output << none.errors;
  EXPECT_EQ(job.Steps("none")[0].at("actor/selected_tokens"), 0);
  EXPECT_NE(job.Steps("none")[1].at("train/loss"), job.Steps("one0")[1].at("train/loss"));
}

TEST(PolicyAlgorithmsTest, TokensFarFromTheRolloutAreLeftOut) {
  const PolicyJob job;
  const std::vector<std::string> common = {kMixedReward, "trainer.total_training_steps=1",
                                           "trainer.export_hf_model=false"};
  const auto run = [&](const std::string& name, const std::string& correction) {
    std::vector<std::string> overrides = common;
    overrides.push_back("algorithm.rollout_correction=" + correction);
    const CommandResult result = job.Run(name, overrides);
    EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
    return job.Steps(name).at(0);
  };
  // The rollout engine and the trainer differ by rounding, so that a bound of 1e-300 keeps few and one of 1 all.
  const auto wide = run("wide", "{rollout_rs: token_k2, rollout_rs_threshold: 1}");
  EXPECT_EQ(wide.at("rollout_corr/rejected_tokens"), 0);
  EXPECT_EQ(wide.at("training/updates"), 1);
  const auto narrow = run("narrow", "{rollout_rs: token_k2, rollout_rs_threshold: 1e-300}");
  EXPECT_GT(narrow.at("rollout_corr/rejected_tokens"), 0);
  EXPECT_LT(narrow.at("rollout_corr/rejected_tokens"), 1);
  EXPECT_NE(narrow.at("train/grad_norm"), wide.at("train/grad_norm"));
  const auto nothing = run("nothing", "{rollout_rs: token_k1, rollout_rs_threshold: 2.0_3.0}");
  EXPECT_EQ(nothing.at("rollout_corr/rejected_tokens"), 1);
  EXPECT_EQ(nothing.at("training/updates"), 0) << "no token is left";
  EXPECT_EQ(job.Run("bad", {"algorithm.rollout_correction={rollout_rs: token_k9}"}).exit_code, 2);
  // Weights that are near 1 are divided by a mean that is near 1.
  const auto plain = run("plain", "{rollout_is: token}"),
             normalised = run("normalised", "{rollout_is: token, rollout_is_batch_normalize: true}");
  EXPECT_NEAR(normalised.at("train/loss"), plain.at("train/loss"), 1e-5);
}

TEST(PolicyAlgorithmsTest, RewardsMayBeNormalisedOneByOne) {
  const PolicyJob job;
  const std::string terms =
      "reward={terms: {vowel: {kind: format, pattern: '[aeiou]', mode: search, weight: 100}, a: {kind: format, "
      "pattern: "
      "'[a-m]', mode: search}}}";
  const CommandResult gdpo = job.Run("gdpo", {"algorithm.adv_estimator=gdpo", terms, "rollout.n=8"});
  ASSERT_EQ(gdpo.exit_code, 0) << gdpo.output << gdpo.errors;
  const CommandResult grpo = job.Run("grpo", {terms, "rollout.n=8"});
  ASSERT_EQ(grpo.exit_code, 0) << grpo.output << grpo.errors;
  const auto a = job.Steps("gdpo")[0], b = job.Steps("grpo")[0];
  EXPECT_EQ(a.at("critic/score/mean"), b.at("critic/score/mean"));
  EXPECT_NE(a.at("train/loss"), b.at("train/loss"));
  EXPECT_NEAR(a.at("critic/advantages/mean"), 0, 1e-6) << "whitened over the step";
  EXPECT_EQ(job.Run("bad", {"algorithm.adv_estimator=gdpo", "algorithm.use_kl_in_reward=true"}).exit_code, 2);
}

}  // namespace
}  // namespace sluice::testing
