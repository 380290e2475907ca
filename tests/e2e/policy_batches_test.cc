// What becomes of a batch of prompts and its answers before they are learned from: groups that are replaced, answers
// that are dealt to the ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/e2e/policy_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

TEST(PolicyBatchesTest, GroupsThatTeachNothingAreReplaced) {
  const PolicyJob job;
  job.Write("reward.py", kSomeFlat);
  const std::vector<std::string> overrides = {"reward={custom_reward_function: {path: " + job.Path("reward.py") + "}}",
                                              "algorithm.filter_groups={enable: true, metric: acc}",
                                              "actor.ppo_mini_batch_size=2",
                                              "trainer.rollout_data_dir=" + job.Path("answers")};
  const CommandResult calm = job.Run("calm", overrides);
  ASSERT_EQ(calm.exit_code, 0) << calm.output << calm.errors;
  const auto steps = job.Steps("calm");
  ASSERT_EQ(steps.size(), 3u);
  double batches = 0, filtered = 0, surplus = 0;
  for (const auto& step : steps) {
    EXPECT_EQ(step.at("train/samples"), 16) << "four groups of four, whatever was left out";
    EXPECT_EQ(step.at("training/missing_groups"), 0);
    EXPECT_EQ(step.at("training/learned_answers"), 1);
    EXPECT_EQ(step.at("training/updates"), 2);
    EXPECT_EQ(step.at("actor/max_abs_log_ratio") == 0, false) << "the second update is off-policy";
    batches += step.at("training/gen_batches");
    filtered += step.at("training/filtered_groups");
    surplus += step.at("training/surplus_groups");
    EXPECT_TRUE(step.contains("timing_s/filter"));
  }
  EXPECT_GT(batches, 3) << "some step needed more than one batch";
  EXPECT_EQ(batches * 4, filtered + surplus + 12) << "each group was used, left out, or one too many";
  // What was left out can be looked at.
  EXPECT_THAT(job.Contents("answers/step_1.rank_0.parquet"), HasSubstr("PAR1"));

  std::vector<std::string> two = overrides;
  two.push_back("trainer.n_gpus_per_node=2");
  const CommandResult both = job.Run("two", two);
  ASSERT_EQ(both.exit_code, 0) << both.output << both.errors;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto step = job.Steps("two").at(i);
    for (const char* name : {"training/gen_batches", "training/filtered_groups", "training/surplus_groups",
                             "train/samples", "train/tokens"}) {
      EXPECT_EQ(step.at(name), steps[i].at(name)) << name;
    }
    EXPECT_NEAR(step.at("train/loss"), steps[i].at("train/loss"), 1e-5);
    EXPECT_NEAR(step.at("train/grad_norm"), steps[i].at("train/grad_norm"), 1e-4);
  }

  // A run that dies goes on with the batch of prompts that comes next.
  for (const char* failpoint : {"engine.stage.filter=2", "engine.micro_batch=7"}) {
    const std::string run = std::string("killed-") + (failpoint[7] == 's' ? "filter" : "update");
    const CommandResult killed = job.Run(run, overrides, {{"SLUICE_FAILPOINTS", failpoint}});
    ASSERT_EQ(killed.exit_code, 0) << killed.output << killed.errors;
    EXPECT_THAT(killed.output + killed.errors, HasSubstr("was lost"));
    EXPECT_EQ(job.Contents(run + "/huggingface/model.safetensors"), job.Contents("calm/huggingface/model.safetensors"));
  }
}

TEST(PolicyBatchesTest, WhatTellsAnswersApartIsChosen) {
  const PolicyJob job;
  job.Write("reward.py", kSomeFlat);
  const std::string reward = "reward={custom_reward_function: {path: " + job.Path("reward.py") + "}}";
  // By their scores all groups differ.
  const CommandResult by_score =
      job.Run("score", {reward, "algorithm.filter_groups.enable=true", "trainer.export_hf_model=false"});
  ASSERT_EQ(by_score.exit_code, 0) << by_score.output << by_score.errors;
  for (const auto& step : job.Steps("score")) EXPECT_EQ(step.at("training/filtered_groups"), 0);
  // One batch only: what is left out is not replaced.
  const CommandResult once =
      job.Run("once", {reward, "algorithm.filter_groups={enable: true, metric: acc, max_num_gen_batches: 1}",
                       "data.train_batch_size=8", "trainer.total_training_steps=1", "trainer.export_hf_model=false"});
  ASSERT_EQ(once.exit_code, 0) << once.output << once.errors;
  const auto step = job.Steps("once").at(0);
  EXPECT_EQ(step.at("training/gen_batches"), 1);
  EXPECT_GE(step.at("training/filtered_groups"), 2);
  EXPECT_EQ(step.at("train/samples"), 32 - 4 * step.at("training/filtered_groups"));
  const CommandResult unknown =
      job.Run("unknown", {reward, "algorithm.filter_groups={enable: true, metric: accuracy}"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output + unknown.errors,
              HasSubstr("algorithm.filter_groups.metric: the reward gives no number \"accuracy\"; it gives score, "));
  const CommandResult single = job.Run("single", {"algorithm.filter_groups.enable=true", "rollout.n=1"});
  EXPECT_EQ(single.exit_code, 2);
  EXPECT_THAT(single.output + single.errors, HasSubstr("algorithm.filter_groups.enable: "));
}

TEST(PolicyBatchesTest, AnswersAreDealtEvenlyAndItChangesNothing) {
  const PolicyJob job;
  // Answers that end at a vowel: lengths of every kind.
  const std::vector<std::string> overrides = {
      "rollout.stop=[e, a, i]",         "rollout.n=6",
      "data.train_batch_size=8",        "actor.ppo_mini_batch_size=4",
      "trainer.total_training_steps=2", "reward={kind: length, options: {max_tokens: 8, buffer: 7}}"};
  for (const std::string estimator : {"grpo", "remax", "gae"}) {
    std::vector<std::string> own = overrides;
    own.push_back("algorithm.adv_estimator=" + estimator);
    if (estimator == "gae") own.push_back("critic.optim.lr=1e-3");
    ASSERT_EQ(job.Run("one-" + estimator, own).exit_code, 0) << estimator;
    own.push_back("trainer.n_gpus_per_node=2");
    const CommandResult even = job.Run("even-" + estimator, own);
    own.push_back("trainer.balance_batch=false");
    const CommandResult uneven = job.Run("uneven-" + estimator, own);
    ASSERT_EQ(even.exit_code, 0) << even.output << even.errors;
    ASSERT_EQ(uneven.exit_code, 0) << uneven.output << uneven.errors;
    double worst = 1, worst_uneven = 1;
    for (size_t i = 0; i < 2; ++i) {
      const auto one = job.Steps("one-" + estimator)[i], balanced = job.Steps("even-" + estimator)[i],
                 as_generated = job.Steps("uneven-" + estimator)[i];
      for (const auto& step : {balanced, as_generated}) {
        EXPECT_EQ(step.at("train/tokens"), one.at("train/tokens"));
        EXPECT_NEAR(step.at("train/loss"), one.at("train/loss"), 1e-5) << estimator;
        EXPECT_NEAR(step.at("train/grad_norm"), one.at("train/grad_norm"), 1e-4) << estimator;
        EXPECT_NEAR(step.at("critic/advantages/mean"), one.at("critic/advantages/mean"), 1e-5) << estimator;
        EXPECT_EQ(step.at("global_seqlen/mean") * 2, one.at("train/tokens"));
        if (estimator == "gae") {
          EXPECT_NEAR(step.at("critic/vf_loss"), one.at("critic/vf_loss"), 1e-5);
        }
      }
      EXPECT_EQ(one.at("global_seqlen/imbalance"), 1);
      EXPECT_EQ(as_generated.at("global_seqlen/balanced_max"), as_generated.at("global_seqlen/max"));
      EXPECT_EQ(balanced.at("global_seqlen/max"), as_generated.at("global_seqlen/max"));
      EXPECT_LE(balanced.at("global_seqlen/balanced_max") - balanced.at("global_seqlen/balanced_min"),
                balanced.at("global_seqlen/minmax_diff"));
      worst = std::max(worst, balanced.at("global_seqlen/imbalance"));
      worst_uneven = std::max(worst_uneven, as_generated.at("global_seqlen/imbalance"));
    }
    EXPECT_LT(worst, worst_uneven) << estimator;
    // Single answers fit better than groups.
    EXPECT_LT(worst, estimator == "gae" ? 1.02 : 1.1) << estimator;
  }
}

TEST(PolicyBatchesTest, AnswersOfOtherPoolsAreDealtEvenlyToo) {
  const PolicyJob job;
  job.Write("reward.py", kSomeFlat);
  const std::vector<std::string> common = {
      "rollout.stop=[e, a, i]",         "rollout.n=6",
      "data.train_batch_size=8",        "actor.ppo_mini_batch_size=4",
      "trainer.total_training_steps=2", "reward={kind: length, options: {max_tokens: 8, buffer: 7}}",
      "actor.use_kl_loss=true",         "trainer.export_hf_model=false"};
  const std::vector<std::string> apart = {
      "trainer.n_gpus_per_node=4",
      "pools=[{pool: train, ranks: 2, roles: actor}, {pool: answer, ranks: 1, roles: rollout}, "
      "{pool: compare, ranks: 1, roles: ref}]"};
  const std::vector<std::string> together = {
      "trainer.n_gpus_per_node=3",
      "pools=[{pool: train, ranks: 2, roles: [actor, rollout]}, {pool: compare, ranks: 1, roles: ref}]"};
  // Groups; the most likely answers beside them; a critic; groups that are replaced; and a flow in which answers,
  // scores and the reference's log-probabilities come at once.
  const std::map<std::string, std::vector<std::string>> kinds = {
      {"grpo", {}},
      {"remax", {"algorithm.adv_estimator=remax"}},
      {"gae", {"algorithm.adv_estimator=gae", "critic.optim.lr=1e-3"}},
      {"dapo",
       {"reward={custom_reward_function: {path: " + job.Path("reward.py") + "}}",
        "algorithm.filter_groups={enable: true, metric: acc}"}},
      {"flow",
       {"recipe=dataflow",
        "dataflow=[{stage: answers, op: generate, model: actor}, {stage: score, op: reward, inputs: answers}, "
        "{stage: ref, op: ref_logprob, model: ref, inputs: answers}, "
        "{stage: adv, op: advantage, inputs: [score, ref], estimator: grpo}, "
        "{stage: learn, op: update, model: actor, inputs: adv}]"}}};
  for (const auto& [kind, more] : kinds) {
    const std::vector<std::string> own = With(common, more);
    ASSERT_EQ(job.Run("one-" + kind, own).exit_code, 0) << kind;
    ASSERT_EQ(job.Run("even-" + kind, With(own, apart)).exit_code, 0) << kind;
    ASSERT_EQ(job.Run("together-" + kind, With(own, together)).exit_code, 0) << kind;
    ASSERT_EQ(job.Run("uneven-" + kind, With(With(own, apart), {"trainer.balance_batch=false"})).exit_code, 0) << kind;
    double worst = 1, worst_uneven = 1;
    for (size_t i = 0; i < 2; ++i) {
      const auto one = job.Steps("one-" + kind)[i], even = job.Steps("even-" + kind)[i],
                 uneven = job.Steps("uneven-" + kind)[i];
      for (const auto& step : {even, job.Steps("together-" + kind)[i], uneven}) {
        EXPECT_EQ(step.at("train/tokens"), one.at("train/tokens")) << kind;
        EXPECT_NEAR(step.at("train/loss"), one.at("train/loss"), 1e-5) << kind;
        EXPECT_NEAR(step.at("train/grad_norm"), one.at("train/grad_norm"), 1e-4) << kind;
        EXPECT_NEAR(step.at("actor/kl_loss"), one.at("actor/kl_loss"), 1e-5) << kind << ": of another pool";
        EXPECT_NEAR(step.at("critic/advantages/mean"), one.at("critic/advantages/mean"), 1e-5) << kind;
        EXPECT_NEAR(step.at("critic/rewards/mean"), one.at("critic/rewards/mean"), 1e-6) << kind;
      }
      worst = std::max(worst, even.at("global_seqlen/imbalance"));
      worst_uneven = std::max(worst_uneven, uneven.at("global_seqlen/imbalance"));
    }
    EXPECT_LT(worst, worst_uneven) << kind;
    EXPECT_LT(worst, 1.1) << kind;
  }
}

}  // namespace
}  // namespace sluice::testing
