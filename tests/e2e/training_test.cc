// Whole runs through the real processes: they end with the right weights, also after being killed anywhere.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/e2e/tiny_job.h"

namespace sluice::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWeights[] = "/global_step_8/weights.safetensors";
constexpr char kOptimizer[] = "/global_step_8/optimizer.safetensors";
constexpr char kState[] = "/global_step_8/training_state.json";

TEST(TrainingTest, RunsToTheEndAndExports) {
  const TinyJob job;
  const CommandResult run = job.Run("run");
  ASSERT_EQ(run.exit_code, 0) << run.output << run.errors;
  EXPECT_THAT(run.output, HasSubstr("validation after step 0  loss"));
  EXPECT_THAT(run.output, HasSubstr("step 8/8  loss"));
  EXPECT_THAT(run.output, HasSubstr("SUCCEEDED after 8 steps"));
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_TRUE(job.Exists(std::string("run/huggingface/") + file)) << file;
  }
  const std::vector<double> losses = StepLosses(job.Contents("run/metrics.jsonl"));
  ASSERT_EQ(losses.size(), 8u);
  EXPECT_LT(losses.back(), losses.front() - 0.5) << "it learns";

  const CommandResult again = job.Run("run");
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_EQ(StepLosses(job.Contents("run/metrics.jsonl")).size(), 8u) << "a finished run has nothing left to do";
}

TEST(TrainingTest, RerunsAreBitEqual) {
  const TinyJob job;
  ASSERT_EQ(job.Run("a").exit_code, 0);
  ASSERT_EQ(job.Run("b").exit_code, 0);
  ASSERT_FALSE(job.Contents(std::string("a") + kWeights).empty());
  EXPECT_EQ(job.Contents(std::string("a") + kWeights), job.Contents(std::string("b") + kWeights));
}

struct Kill {
  const char* name;
  const char* failpoints;
};

class KilledRunTest : public ::testing::TestWithParam<Kill> {};

// N steps equal k steps, kill -9, resume and N - k steps: weights, optimizer, counters, bit for bit.
TEST_P(KilledRunTest, ResumesBitEqual) {
  const TinyJob job;
  ASSERT_EQ(job.Run("whole").exit_code, 0);
  const CommandResult killed =
      job.Run("killed", {"trainer.max_restarts=0"}, {{"SLUICE_FAILPOINTS", GetParam().failpoints}});
  ASSERT_EQ(killed.exit_code, 1) << killed.output << killed.errors;
  EXPECT_THAT(killed.errors, HasSubstr("signal 9"));
  EXPECT_FALSE(job.Exists(std::string("killed") + kWeights));
  const CommandResult resumed = job.Run("killed");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output << resumed.errors;
  for (const char* file : {kWeights, kOptimizer, kState}) {
    ASSERT_FALSE(job.Contents(std::string("whole") + file).empty());
    EXPECT_EQ(job.Contents(std::string("whole") + file), job.Contents(std::string("killed") + file)) << file;
  }
  const std::vector<double> whole = StepLosses(job.Contents("whole/metrics.jsonl"));
  EXPECT_EQ(whole, StepLosses(job.Contents("killed/metrics.jsonl"))) << "each step is in the history once";
}

INSTANTIATE_TEST_SUITE_P(Places, KilledRunTest,
                         ::testing::Values(Kill{"InsideGradientAccumulation", "engine.micro_batch=13"},
                                           Kill{"FirstStep", "engine.micro_batch=1"},
                                           Kill{"BeforeTheCommitAtTheEpochBoundary",
                                                "engine.checkpoint_before_commit=4"},
                                           Kill{"AfterTheCommitAtTheEpochBoundary", "engine.checkpoint_after_commit=4"},
                                           Kill{"FirstMicroBatchOfTheSecondEpoch", "engine.micro_batch=21"}),
                         [](const auto& info) { return info.param.name; });

// Each attempt is killed after seven micro-batches, one step and a part: the job still ends, with the same weights.
TEST(TrainingTest, IsRestartedByItselfAfterEveryCrash) {
  const TinyJob job;
  ASSERT_EQ(job.Run("whole").exit_code, 0);
  const CommandResult run =
      job.Run("crashing", {"trainer.max_restarts=20"}, {{"SLUICE_FAILPOINTS", "engine.micro_batch=7"}});
  ASSERT_EQ(run.exit_code, 0) << run.output << run.errors;
  EXPECT_THAT(run.output, HasSubstr("RECOVERING"));
  EXPECT_EQ(job.Contents(std::string("whole") + kWeights), job.Contents(std::string("crashing") + kWeights));
}

TEST(TrainingTest, TwoRanksEqualOne) {
  const TinyJob job;
  ASSERT_EQ(job.Run("one").exit_code, 0);
  const CommandResult two = job.Run("two", {"trainer.n_gpus_per_node=2"});
  // Five rows do not divide by two ranks.
  ASSERT_EQ(two.exit_code, 2) << two.errors;
  EXPECT_THAT(two.errors, HasSubstr("data.train_batch_size"));
  ASSERT_EQ(job.Run("one4", {"data.train_batch_size=4"}).exit_code, 0);
  const CommandResult two4 = job.Run("two4", {"data.train_batch_size=4", "trainer.n_gpus_per_node=2"});
  ASSERT_EQ(two4.exit_code, 0) << two4.output << two4.errors;
  const std::vector<double> one_losses = StepLosses(job.Contents("one4/metrics.jsonl"));
  const std::vector<double> two_losses = StepLosses(job.Contents("two4/metrics.jsonl"));
  ASSERT_EQ(one_losses.size(), 10u);
  ASSERT_EQ(two_losses.size(), 10u);
  for (size_t i = 0; i < one_losses.size(); ++i)
    EXPECT_NEAR(two_losses[i] / one_losses[i], 1, 1e-5) << "step " << i + 1;
}

TEST(TrainingTest, MicroBatchSizeDoesNotMatter) {
  const TinyJob job;
  ASSERT_EQ(job.Run("small").exit_code, 0);
  ASSERT_EQ(job.Run("large", {"data.max_token_len_per_gpu=1024"}).exit_code, 0);
  const std::vector<double> small = StepLosses(job.Contents("small/metrics.jsonl"));
  const std::vector<double> large = StepLosses(job.Contents("large/metrics.jsonl"));
  ASSERT_EQ(small.size(), large.size());
  for (size_t i = 0; i < small.size(); ++i) EXPECT_NEAR(small[i] / large[i], 1, 1e-5) << "step " << i + 1;
}

TEST(TrainingTest, BFloat16TrainsWithMasterWeights) {
  const TinyJob job;
  const CommandResult run = job.Run("bf16", {"engine.model_dtype=bf16"});
  ASSERT_EQ(run.exit_code, 0) << run.output << run.errors;
  const std::vector<double> losses = StepLosses(job.Contents("bf16/metrics.jsonl"));
  ASSERT_EQ(losses.size(), 8u);
  EXPECT_LT(losses.back(), losses.front() - 0.5);
  EXPECT_THAT(job.Contents("bf16/global_step_8/optimizer.safetensors"), HasSubstr("master."));
}

TEST(TrainingTest, RetentionKeepsTheNewest) {
  const TinyJob job;
  ASSERT_EQ(job.Run("run", {"trainer.max_ckpt_to_keep=2"}).exit_code, 0);
  EXPECT_FALSE(job.Exists("run/global_step_6"));
  EXPECT_TRUE(job.Exists("run/global_step_7"));
  EXPECT_TRUE(job.Exists("run/global_step_8"));
}

TEST(TrainingTest, NonFiniteLossesEndTheJobAfterTheyWereSkipped) {
  const TinyJob job;
  const CommandResult run = job.Run(
      "run", {"optim.lr=1e30", "optim.lr_warmup_steps=-1", "optim.clip_grad=0", "trainer.max_nonfinite_steps=2"});
  ASSERT_EQ(run.exit_code, 1) << run.output << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("NONFINITE"));
  EXPECT_THAT(run.errors, HasSubstr("2 steps in a row"));
  EXPECT_THAT(run.output, HasSubstr("skipped: not finite"));
  EXPECT_THAT(run.output, Not(HasSubstr("RECOVERING"))) << "starting again cannot help";
}

TEST(TrainingTest, EvaluatesOnlyWhereAsked) {
  const TinyJob job;
  const CommandResult run = job.Run("run", {"engine.forward_only=true"});
  ASSERT_EQ(run.exit_code, 0) << run.output << run.errors;
  EXPECT_THAT(run.output, HasSubstr("validation after step 0  loss"));
  EXPECT_THAT(run.output, Not(HasSubstr("step 1/")));
  EXPECT_FALSE(job.Exists("run/global_step_8"));
}

TEST(TrainingTest, PlainTextScoresEveryToken) {
  const TinyJob job;
  const CommandResult run =
      job.Run("run", {"recipe=pretrain", "data.format=text", "data.text_key=answer", "data.truncation=right"});
  ASSERT_EQ(run.exit_code, 0) << run.output << run.errors;
  const std::string metrics = job.Contents("run/metrics.jsonl");
  const nlohmann::json step = nlohmann::json::parse(metrics.substr(
      metrics.find("{\"step\":1,"), metrics.find('\n', metrics.find("{\"step\":1,")) - metrics.find("{\"step\":1,")));
  // All tokens but each row's first, which nothing predicts.
  EXPECT_EQ(step["train/scored_tokens"].get<int64_t>(),
            step["train/tokens"].get<int64_t>() - step["train/samples"].get<int64_t>());
}

}  // namespace
}  // namespace sluice::testing
