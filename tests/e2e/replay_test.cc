// sluice replay: a step of a run computed again, to the last bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/policy_job.h"
#include "tests/e2e/tiny_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CommandResult Replay(std::vector<std::string> job_and_overrides, int step, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"replay", "--step", std::to_string(step)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.insert(arguments.end(), job_and_overrides.begin(), job_and_overrides.end());
  return RunSluice(arguments);
}

TEST(ReplayTest, AStepOfFineTuningIsTheSameAgain) {
  const TinyJob job;
  const std::vector<std::string> overrides = {"trainer.save_freq=3"};
  const CommandResult run = job.Run("run", overrides);
  ASSERT_EQ(run.exit_code, 0) << run.output << run.errors;
  const std::string weights = job.Contents("run/global_step_6/weights.safetensors");
  // From a checkpoint, with one to compare; the first step, from the beginning; one between checkpoints; the last.
  for (const auto& [step, from, kept] : {std::tuple(6, "the checkpoint of step 3", true),
                                         {1, "the beginning", false},
                                         {5, "the checkpoint of step 3", false},
                                         {8, "the checkpoint of step 6", true}}) {
    const CommandResult result = Replay(job.Arguments("run", overrides), step);
    EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
    EXPECT_THAT(result.output, HasSubstr("step " + std::to_string(step) + " again, from " + from));
    EXPECT_THAT(result.output, HasSubstr("equal to the last bit: "));
    EXPECT_THAT(result.output, HasSubstr(kept ? "the weights and the optimizer's state" : "weights not compared"));
  }
  EXPECT_EQ(job.Contents("run/global_step_6/weights.safetensors"), weights) << "the run is left alone";
  EXPECT_FALSE(job.Exists("run/global_step_5"));

  // Another rate is another step, and a number that is not what the step gives is found.
  std::vector<std::string> other = overrides;
  other.push_back("optim.lr=2e-2");
  const CommandResult changed = Replay(job.Arguments("run", other), 6, {"-o", "json"});
  EXPECT_EQ(changed.exit_code, 1) << changed.output << changed.errors;
  EXPECT_THAT(changed.output, HasSubstr("\"equal\":false"));
  EXPECT_THAT(changed.output, HasSubstr("weights.safetensors"));
  EXPECT_THAT(changed.output, HasSubstr("train/lr"));

  const CommandResult unknown = Replay(job.Arguments("run", overrides), 9);
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("--step 9: "));
  EXPECT_EQ(Replay({}, 3).exit_code, 2) << "no job";
}

TEST(ReplayTest, AStepOfReinforcementLearningIsTheSameAgain) {
  const PolicyJob job;
  // Two ranks, a critic, a controller of the penalty that moves, groups that are replaced, answers that are kept.
  job.Write("reward.py",
            "def compute_score(solution_str, extra_info, **kwargs):\n"
            "    return 1.0 if extra_info['index'] % 4 == 0 else float(sum(map(ord, solution_str)) % 97)\n");
  const std::vector<std::string> overrides = {
      "algorithm={adv_estimator: gae, use_kl_in_reward: true, filter_groups: {enable: true}, kl_ctrl: {type: adaptive, "
      "kl_coef: 0.1, horizon: 100}}",
      "reward={custom_reward_function: {path: " + job.Path("reward.py") + "}}",
      "trainer.n_gpus_per_node=2",
      "trainer.rollout_data_dir=" + job.Path("answers"),
      "data.val_files=" + job.Path("prompts.jsonl"),
      "trainer.test_freq=1"};
  const CommandResult run = job.Run("run", overrides);
  ASSERT_EQ(run.exit_code, 0) << run.output << run.errors;
  std::vector<std::string> arguments = {
      job.Path("policy.yaml"), "model={path: " + job.Path("model") + ", init: random}",
      "data.train_files=" + job.Path("prompts.jsonl"), "trainer.default_local_dir=" + job.Path("run")};
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  for (const int step : {1, 3}) {
    const CommandResult result = Replay(arguments, step);
    EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
    EXPECT_THAT(result.output, HasSubstr("equal to the last bit: "));
    EXPECT_THAT(result.output, HasSubstr("the weights and the optimizer's state"));
    EXPECT_THAT(result.output, Not(HasSubstr("weights not compared")));
  }
}

}  // namespace
}  // namespace sluice::testing
