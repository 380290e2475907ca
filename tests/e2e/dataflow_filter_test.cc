// Groups that teach nothing, replaced in a flow of one's own and over pools, through the real programs, in miniature.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/e2e/policy_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

class DataflowFilterTest : public ::testing::Test {
 protected:
  DataflowFilterTest() { job_.Write("reward.py", kSomeFlat); }

  std::string Reward() const { return "{custom_reward_function: {path: " + job_.Path("reward.py") + "}}"; }

  // DAPO with groups that are told apart by a number of the reward.
  std::vector<std::string> Dapo(const std::vector<std::string>& more = {}) const {
    return With(
        {"recipe=dapo", "reward=" + Reward(), "algorithm.filter_groups.metric=acc", "actor.ppo_mini_batch_size=2"},
        more);
  }

  // The same as stages.
  std::vector<std::string> Flow(const std::vector<std::string>& more = {}) const {
    return With({"recipe=dataflow", "actor={clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: 10}",
                 "reward=" + Reward(),
                 "dataflow=[{stage: answers, op: generate, model: actor}, {stage: judge, op: reward, inputs: answers}, "
                 "{stage: keep, op: filter, inputs: judge, metric: acc, max_num_gen_batches: 10}, "
                 "{stage: old, op: logprob, model: actor, inputs: keep}, "
                 "{stage: adv, op: advantage, inputs: [keep, old], estimator: grpo}, "
                 "{stage: learn, op: update, model: actor, inputs: adv, batch_size: 2}]"},
                more);
  }

  void Run(const std::string& run, const std::vector<std::string>& overrides, const Environment& environment = {}) {
    const CommandResult result = job_.Run(run, overrides, environment);
    ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
    EXPECT_EQ(!environment.empty(), (result.output + result.errors).find("was lost") != std::string::npos);
  }

  double Batches(const std::string& run) const {
    double batches = 0;
    for (const auto& step : job_.Steps(run)) batches += step.at("training/gen_batches");
    return batches;
  }

  const PolicyJob job_;
};

TEST_F(DataflowFilterTest, DapoWrittenOutDoesTheSame) {
  Run("recipe", Dapo());
  Run("flow", Flow());
  EXPECT_GT(Batches("recipe"), 3) << "some step needed more than one batch";
  ASSERT_FALSE(job_.Weights("recipe").empty());
  EXPECT_EQ(job_.Weights("flow"), job_.Weights("recipe")) << "bit for bit";
  ExpectSameSteps(job_, "recipe", "flow");
}

TEST_F(DataflowFilterTest, APoolThatAnswersAndFiltersChangesNothing) {
  const std::vector<std::string> dump = {"trainer.rollout_data_dir=" + job_.Path("answers")};
  Run("colocated", Dapo());
  Run("apart", Dapo(With(Pools(1, 1), dump)));
  EXPECT_EQ(job_.Weights("apart"), job_.Weights("colocated")) << "bit for bit";
  ExpectSameSteps(job_, "colocated", "apart");
  const auto steps = job_.Steps("apart");
  int files = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto& step = steps[i];
    EXPECT_TRUE(step.contains("timing_s/filter"));
    EXPECT_GT(step.at("dataflow/received_bytes/old_logprob"), 16 * 8 * 4) << "the answers, with their scores";
    EXPECT_FALSE(step.contains("dataflow/received_bytes/advantage")) << "which came with them";
    // What was left out can be looked at, where it was.
    const bool left_out = step.at("training/filtered_groups") + step.at("training/surplus_groups") > 0;
    const std::string file = "answers/step_" + std::to_string(i + 1);
    EXPECT_TRUE(std::filesystem::exists(job_.Path(file + ".rank_0.parquet")));
    EXPECT_EQ(std::filesystem::exists(job_.Path(file + ".rank_1.parquet")), left_out) << i;
    files += left_out;
  }
  EXPECT_GT(files, 0);

  Run("flow", Flow(Pools(1, 1)));
  EXPECT_EQ(job_.Weights("flow"), job_.Weights("colocated"));
}

TEST_F(DataflowFilterTest, AReferenceOnAPoolOfItsOwnReadsWhatIsLeft) {
  const std::vector<std::string> compared = {"actor.use_kl_loss=true", "trainer.total_training_steps=2"};
  Run("colocated", Dapo(compared));
  // The filter is on the actor's ranks, and then on others.
  Run("compare", Dapo(With(compared, {"trainer.n_gpus_per_node=2",
                                      "pools=[{pool: train, ranks: 1, roles: [actor, rollout]}, "
                                      "{pool: compare, ranks: 1, roles: ref}]"})));
  Run("three", Dapo(With(compared, {"trainer.n_gpus_per_node=3",
                                    "pools=[{pool: train, ranks: 1, roles: actor}, {pool: answer, ranks: 1, roles: "
                                    "rollout}, {pool: compare, ranks: 1, roles: ref}]"})));
  for (const char* run : {"compare", "three"}) {
    EXPECT_EQ(job_.Weights(run), job_.Weights("colocated")) << run;
    ExpectSameSteps(job_, "colocated", run);
  }
}

TEST_F(DataflowFilterTest, PoolsOfSeveralRanksDealWhatIsLeft) {
  const std::vector<std::string> short_run = {"trainer.export_hf_model=false", "trainer.total_training_steps=2"};
  Run("colocated", Dapo(short_run));
  Run("apart", Dapo(With(Pools(2, 2), short_run)));
  const auto one = job_.Steps("colocated"), four = job_.Steps("apart");
  ASSERT_EQ(one.size(), four.size());
  for (size_t i = 0; i < one.size(); ++i) {
    for (const char* name : {"training/gen_batches", "training/filtered_groups", "training/surplus_groups",
                             "train/samples", "train/tokens"}) {
      EXPECT_EQ(four[i].at(name), one[i].at(name)) << name;
    }
    EXPECT_NEAR(four[i].at("critic/score/mean"), one[i].at("critic/score/mean"), 1e-9);
    EXPECT_NEAR(four[i].at("train/loss"), one[i].at("train/loss"), 1e-5);
    EXPECT_NEAR(four[i].at("train/grad_norm"), one[i].at("train/grad_norm"), 1e-4);
    EXPECT_NEAR(four[i].at("perf/model_flops") / one[i].at("perf/model_flops"), 1, 1e-9);
  }
}

TEST_F(DataflowFilterTest, ARunOfPoolsThatDiesGoesOnWithTheBatchOfPromptsThatComesNext) {
  for (const std::string mode : {"sync", "one_step_off"}) {
    const std::vector<std::string> overrides =
        Dapo(With(Pools(1, 1), {"rollout.mode=" + mode, "trainer.total_training_steps=4", "trainer.save_freq=2"}));
    Run("calm-" + mode, overrides);
    EXPECT_GT(Batches("calm-" + mode), 4);
    // In each case the third time is after the checkpoint.
    for (const std::string failpoint : {"engine.stage.filter=3", "engine.stage.update=3"}) {
      const std::string run = mode + failpoint;
      Run(run, overrides, {{"SLUICE_FAILPOINTS", failpoint}});
      EXPECT_EQ(job_.Weights(run), job_.Weights("calm-" + mode)) << run;
    }
  }
  // And on one pool with what two have done.
  const std::vector<std::string> half = {"trainer.total_training_steps=4", "trainer.save_freq=2"};
  Run("colocated", Dapo(half));
  EXPECT_EQ(job_.Weights("calm-sync"), job_.Weights("colocated"));
}

TEST_F(DataflowFilterTest, AnswersThatReplaceOthersAreOfTheSameWeights) {
  for (const char* run : {"first", "second"}) {
    Run(run, Dapo(With(Pools(1, 1),
                       {"rollout.mode=one_step_off", "trainer.total_training_steps=5", "trainer.save_freq=-1"})));
  }
  const auto steps = job_.Steps("first");
  ASSERT_EQ(steps.size(), 5u);
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].at("training/staleness"), i == 0 ? 0 : 1) << i;
  EXPECT_EQ(job_.Weights("first"), job_.Weights("second")) << "however long which stage took";
  ExpectSameSteps(job_, "first", "second");
  Run("async", Dapo(With(Pools(1, 1), {"rollout.mode=async", "rollout.max_staleness=2", "trainer.save_freq=-1",
                                       "trainer.total_training_steps=6"})));
  for (const auto& step : job_.Steps("async")) EXPECT_LE(step.at("training/staleness"), 2);
}

TEST_F(DataflowFilterTest, TheFilterAddsUpWhatSeveralStagesScore) {
  const std::string python = "path: " + job_.Path("reward.py");
  const std::string form = "kind: format, pattern: '[aeiou]', mode: search";
  Run("one", Dapo({"reward={terms: {a: {kind: python, " + python + "}, b: {" + form + "}}}"}));
  const std::vector<std::string> several = {
      "recipe=dataflow", "actor={clip_ratio_low: 0.2, clip_ratio_high: 0.28, clip_ratio_c: 10}", "reward={kind: auto}",
      "dataflow=[{stage: answers, op: generate, model: actor}, "
      "{stage: a, op: reward, inputs: answers, reward: {custom_reward_function: {" +
          python +
          "}}}, "
          "{stage: b, op: reward, inputs: answers, reward: {terms: {form: {" +
          form +
          "}}}}, "
          "{stage: keep, op: filter, inputs: [a, b], metric: acc}, "
          "{stage: old, op: logprob, model: actor, inputs: keep}, "
          "{stage: adv, op: advantage, inputs: [keep, old], estimator: grpo}, "
          "{stage: learn, op: update, model: actor, inputs: adv, batch_size: 2}]"};
  Run("several", several);
  Run("apart", With(several, Pools(1, 1)));
  EXPECT_GT(Batches("one"), 3);
  for (const char* run : {"several", "apart"}) EXPECT_EQ(job_.Weights(run), job_.Weights("one")) << run;
  ExpectSameSteps(job_, "several", "apart");

  // A number that no stage gives is the user's error.
  std::vector<std::string> wrong = several;
  for (std::string& text : wrong) {
    if (const size_t at = text.find("metric: acc"); at != text.npos) text.replace(at, 11, "metric: accuracy");
  }
  const CommandResult result = job_.Run("wrong", wrong);
  EXPECT_EQ(result.exit_code, 2) << result.output << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("the reward gives no number \"accuracy\"; it gives score, a/acc, a/score"));
}

}  // namespace
}  // namespace sluice::testing
