// Reinforcement learning learns: from random weights to answers that the reward wants.

#include <gtest/gtest.h>

#include "tests/e2e/policy_job.h"

namespace sluice::testing {
namespace {

double MeanScore(const std::vector<std::map<std::string, double>>& steps, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += steps[i].at("critic/score/mean");
  return sum / static_cast<double>(end - begin);
}

// The reward wants two vowels in a row, which a random model writes in one answer of six.
TEST(PolicyLearningTest, GrpoRaisesTheReward) {
  const PolicyJob job;
  const CommandResult result = job.Run(
      "run", {"trainer.total_training_steps=40", "trainer.save_freq=-1", "data.train_batch_size=8", "rollout.n=16",
              "optim.lr=5e-3", R"(reward={kind: format, options: {pattern: "[aeiou]{2}", mode: search}})"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto steps = job.Steps("run");
  ASSERT_EQ(steps.size(), 40u);
  const double before = MeanScore(steps, 0, 3), after = MeanScore(steps, 37, 40);
  RecordProperty("before", std::to_string(before));
  RecordProperty("after", std::to_string(after));
  EXPECT_LT(before, 0.5);
  EXPECT_GT(after, before + 0.4);
}

// The same with a critic in place of groups.
TEST(PolicyLearningTest, PpoRaisesTheReward) {
  const PolicyJob job;
  const CommandResult result = job.Run(
      "run", {"recipe=ppo", "trainer.total_training_steps=40", "trainer.save_freq=-1", "data.train_batch_size=8",
              "rollout.n=16", "optim.lr=5e-3", "critic={optim: {lr: 5e-3}}", "trainer.critic_warmup=3",
              R"(reward={kind: format, options: {pattern: "[aeiou]{2}", mode: search}})"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto steps = job.Steps("run");
  ASSERT_EQ(steps.size(), 40u);
  const double before = MeanScore(steps, 0, 3), after = MeanScore(steps, 37, 40);
  RecordProperty("before", std::to_string(before));
  RecordProperty("after", std::to_string(after));
  EXPECT_LT(before, 0.5);
  EXPECT_GT(after, before + 0.4);
  // The critic learned too: it has followed the reward up.
  EXPECT_NEAR(steps.back().at("critic/vpred_mean"), steps.back().at("critic/score/mean"), 0.1);
}

}  // namespace
}  // namespace sluice::testing
