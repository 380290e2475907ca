// checkpoint.best_metric through the real programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/e2e/policy_job.h"
#include "tests/e2e/tiny_job.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::set<int64_t> Checkpoints(const std::string& folder) {
  std::set<int64_t> steps;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.rfind("global_step_", 0) == 0) steps.insert(std::stoll(name.substr(12)));
  }
  return steps;
}

// The step after the first whose validation has the largest, or smallest, val/loss; the earliest of equals.
int64_t BestStep(const TinyJob& job, const std::string& run, bool largest) {
  int64_t best = 0;
  double best_loss = 0;
  for (const auto& validation : MetricLines(job.Contents(run + "/metrics.jsonl"), "val/loss")) {
    const double loss = largest ? validation.at("val/loss") : -validation.at("val/loss");
    if (validation.at("step") == 0 || (best > 0 && loss <= best_loss)) continue;
    best = static_cast<int64_t>(validation.at("step"));
    best_loss = loss;
  }
  return best;
}

std::string Named(int64_t step) { return "/global_step_" + std::to_string(step) + " (val/loss "; }

// Losses fall in the first steps: the worst of them, as `max` sees it the best, is an early one.
const std::vector<std::string> kWorst = {"checkpoint={best_metric: val/loss, best_mode: max}", "trainer.test_freq=1",
                                         "trainer.max_ckpt_to_keep=1"};

TEST(BestCheckpointTest, StaysBesidesTheNewest) {
  const TinyJob job;
  for (const bool largest : {true, false}) {
    const std::string run = largest ? "largest" : "smallest";
    std::vector<std::string> overrides = kWorst;
    if (!largest) overrides.push_back("checkpoint.best_mode=auto");
    const CommandResult result = job.Run(run, overrides);
    ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
    const int64_t best = BestStep(job, run, largest);
    EXPECT_EQ(Checkpoints(job.Path(run)), (std::set<int64_t>{best, 8}));
    EXPECT_THAT(result.output, HasSubstr("best checkpoint: " + job.Path(run) + Named(best)));
    if (largest) {
      EXPECT_LT(best, 8) << "so the test above means something";
    }
    EXPECT_THAT(job.Contents(run + "/global_step_" + std::to_string(best) + "/manifest.json"), HasSubstr("val/loss"));
  }
}

TEST(BestCheckpointTest, ABetterValidationIsSavedAndFoundAgainAfterADeath) {
  const TinyJob job;
  std::vector<std::string> overrides = kWorst;
  overrides.push_back("trainer.save_freq=5");
  const CommandResult calm = job.Run("calm", overrides);
  ASSERT_EQ(calm.exit_code, 0) << calm.output << calm.errors;
  const int64_t best = BestStep(job, "calm", /*largest=*/true);
  ASSERT_NE(best % 5, 0) << "no checkpoint was due";
  EXPECT_EQ(Checkpoints(job.Path("calm")), (std::set<int64_t>{best, 8}));

  // In the seventh step, after the checkpoint of the fifth.
  const CommandResult killed = job.Run("killed", overrides, {{"SLUICE_FAILPOINTS", "engine.micro_batch=33"}});
  ASSERT_EQ(killed.exit_code, 0) << killed.output << killed.errors;
  EXPECT_THAT(killed.output + killed.errors, HasSubstr("was lost"));
  EXPECT_EQ(Checkpoints(job.Path("killed")), (std::set<int64_t>{best, 8}));
  EXPECT_THAT(killed.output, HasSubstr("best checkpoint: " + job.Path("killed") + Named(best)));
  EXPECT_EQ(job.Contents("killed/huggingface/model.safetensors"), job.Contents("calm/huggingface/model.safetensors"));

  // And by another run in the folder, which has nothing left to do.
  const CommandResult again = job.Run("killed", overrides);
  ASSERT_EQ(again.exit_code, 0) << again.output << again.errors;
  EXPECT_THAT(again.output, HasSubstr("best checkpoint: " + job.Path("killed") + Named(best)));
}

TEST(BestCheckpointTest, ByAScoreOfReinforcementLearning) {
  const PolicyJob job;
  const CommandResult result = job.Run(
      "run", {"data.val_files=" + job.Path("prompts.jsonl"), "checkpoint.best_metric=val/score/mean",
              "trainer.test_freq=1", "trainer.max_ckpt_to_keep=1", "rollout.val_kwargs={n: 4, temperature: 1}"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  int64_t best = 0;
  double best_score = -1;
  for (const auto& validation : job.Validations("run")) {
    if (validation.at("step") == 0 || validation.at("val/score/mean") <= best_score) continue;
    best = static_cast<int64_t>(validation.at("step"));
    best_score = validation.at("val/score/mean");
  }
  EXPECT_EQ(Checkpoints(job.Path("run")), (std::set<int64_t>{best, 3}));
  EXPECT_THAT(result.output, HasSubstr("/global_step_" + std::to_string(best) + " (val/score/mean "));
}

TEST(BestCheckpointTest, BadInputIsNamed) {
  const TinyJob job;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"checkpoint.best_metric=loss"}, "checkpoint.best_metric: \"loss\" is no number of a validation"},
      {{"checkpoint.best_metric=val/loss", "data.val_files=[]"}, "checkpoint.best_metric: is a number of a validation"},
      {{"checkpoint.best_mode=min"}, "checkpoint.best_mode: has no effect"},
      {{"checkpoint.best_metric=val/score/mean"},
       "checkpoint.best_metric: a validation gives no number \"val/score/mean\"; it gives val/loss"}};
  for (const auto& [overrides, message] : cases) {
    const CommandResult result = job.Run("bad", overrides);
    EXPECT_EQ(result.exit_code, 2) << overrides[0] << result.output << result.errors;
    EXPECT_THAT(result.output + result.errors, HasSubstr(message));
  }
  const CommandResult without = job.Run("without", {"trainer.total_epochs=1"});
  ASSERT_EQ(without.exit_code, 0) << without.output << without.errors;
  EXPECT_THAT(without.output, Not(HasSubstr("best checkpoint")));
}

}  // namespace
}  // namespace sluice::testing
