// Reinforcement learning through the real programs, in miniature.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/policy_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PolicyTest, TheFirstUpdateIsOnPolicy) {
  const PolicyJob job;
  const CommandResult result =
      job.Run("run", {"data.val_files=" + job.Path("prompts.jsonl"), "actor.entropy_coeff=0.01"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_THAT(result.output, HasSubstr("score "));
  EXPECT_THAT(result.output, HasSubstr("validation score "));
  const auto steps = job.Steps("run");
  ASSERT_EQ(steps.size(), 3u);
  for (const auto& step : steps) {
    // One update a step: the weights it starts from are those that answered.
    EXPECT_EQ(step.at("actor/ppo_kl"), 0);
    EXPECT_EQ(step.at("actor/max_abs_log_ratio"), 0);
    EXPECT_EQ(step.at("actor/pg_clipfrac"), 0);
    EXPECT_LT(step.at("training/rollout_logprob_diff_mean"), 1e-4);
    EXPECT_EQ(step.at("training/updates"), 1);
    EXPECT_EQ(step.at("training/staleness"), 0);
    EXPECT_EQ(step.at("train/samples"), 16);
    EXPECT_GT(step.at("actor/entropy"), 1);
    // 16 answers of up to 40 tokens do not fill micro-batches of 96 slots.
    EXPECT_GE(step.at("train/micro_batches"), 3);
    EXPECT_EQ(step.at("train/token_slots"), step.at("train/micro_batches") * 96);
    EXPECT_GT(step.at("train/token_slots"), step.at("train/tokens"));
    for (const char* phase : {"generate", "reward", "logprob", "advantage", "update"}) {
      EXPECT_TRUE(step.contains(std::string("timing_s/") + phase)) << phase;
    }
  }
  const auto validations = job.Validations("run");
  ASSERT_EQ(validations.size(), 2u) << "before the first step and after the last";
  EXPECT_TRUE(validations[0].contains("val/score/even/mean"));
  EXPECT_FALSE(job.Contents("run/huggingface/model.safetensors").empty());
}

TEST(PolicyTest, TwoRanksDoWhatOneDoes) {
  const PolicyJob job;
  const std::vector<std::string> overrides = {"actor.ppo_mini_batch_size=2", "actor.use_kl_loss=true",
                                              "trainer.export_hf_model=false"};
  std::vector<std::string> two = overrides;
  two.push_back("trainer.n_gpus_per_node=2");
  const CommandResult first = job.Run("one", overrides), second = job.Run("two", two);
  ASSERT_EQ(first.exit_code, 0) << first.output << first.errors;
  ASSERT_EQ(second.exit_code, 0) << second.output << second.errors;
  const auto one = job.Steps("one"), both = job.Steps("two");
  ASSERT_EQ(one.size(), both.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(both[i].at("training/updates"), 2);
    EXPECT_GT(both[i].at("timing_s/switch"), 0);
    EXPECT_LT(both[i].at("timing_s/switch"), both[i].at("timing_s/generate"));
    EXPECT_EQ(both[i].at("train/tokens"), one[i].at("train/tokens"));
    EXPECT_NEAR(both[i].at("perf/model_flops") / one[i].at("perf/model_flops"), 1, 1e-9);
    EXPECT_GE(both[i].at("train/token_slots"), both[i].at("train/tokens"));
    EXPECT_NEAR(both[i].at("critic/score/mean"), one[i].at("critic/score/mean"), 1e-12);
    EXPECT_NEAR(both[i].at("train/loss"), one[i].at("train/loss"), 1e-5);
    EXPECT_NEAR(both[i].at("train/grad_norm"), one[i].at("train/grad_norm"), 1e-4);
    EXPECT_NEAR(both[i].at("actor/entropy"), one[i].at("actor/entropy"), 1e-4);
  }
}

TEST(PolicyTest, ARunThatIsKilledEndsWithTheSameWeights) {
  const PolicyJob job;
  const std::vector<std::string> overrides = {"algorithm.use_kl_in_reward=true",
                                              "algorithm.kl_ctrl={type: adaptive, kl_coef: 0.1, horizon: 100}"};
  const CommandResult calm = job.Run("calm", overrides);
  ASSERT_EQ(calm.exit_code, 0) << calm.output << calm.errors;
  // The process dies inside of the second step: after its answers were generated, and in its update.
  for (const char* failpoint : {"engine.stage.generate=2", "engine.micro_batch=7"}) {
    const std::string run = std::string("killed-") + (failpoint[7] == 's' ? "stage" : "update");
    const CommandResult killed = job.Run(run, overrides, {{"SLUICE_FAILPOINTS", failpoint}});
    ASSERT_EQ(killed.exit_code, 0) << killed.output << killed.errors;
    EXPECT_THAT(killed.output + killed.errors, HasSubstr("was lost"));
    EXPECT_EQ(job.Contents(run + "/huggingface/model.safetensors"), job.Contents("calm/huggingface/model.safetensors"));
    EXPECT_EQ(job.Steps(run).back().at("actor/reward_kl_penalty_coeff"),
              job.Steps("calm").back().at("actor/reward_kl_penalty_coeff"));
  }
  EXPECT_NE(job.Steps("calm")[0].at("actor/reward_kl_penalty_coeff"),
            job.Steps("calm")[2].at("actor/reward_kl_penalty_coeff"))
      << "the controller moves, so the test above means something";
}

TEST(PolicyTest, RewardsThatFailAreCountedAndLeftOut) {
  const PolicyJob job;
  job.Write("reward.py", R"(
def compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs):
    index = extra_info["index"]
    if index == 0: raise ValueError("no idea")
    if index == 2: return float("nan")
    if index == 4: return "much"
    if index == 6:
        while True: pass
    return {"score": float(len(solution_str) % 3), "length": len(solution_str)}
)");
  const CommandResult result =
      job.Run("run", {"reward={custom_reward_function: {path: " + job.Path("reward.py") + ", timeout_s: 1.5}}",
                      "data.train_batch_size=8", "trainer.total_training_steps=1", "trainer.export_hf_model=false"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto step = job.Steps("run").at(0);
  EXPECT_EQ(step.at("reward/errors/raised"), 4);
  EXPECT_EQ(step.at("reward/errors/bad_value"), 8);
  EXPECT_EQ(step.at("reward/errors/timeout"), 4);
  EXPECT_EQ(step.at("training/learned_answers"), 0.5);
}

TEST(PolicyTest, WithoutAnyRewardNothingIsLearned) {
  const PolicyJob job;
  job.Write("reward.py", "def compute_score(**kwargs): raise ValueError('never')\n");
  const CommandResult result = job.Run("run", {"reward={custom_reward_function: {path: " + job.Path("reward.py") + "}}",
                                               "data.val_files=" + job.Path("prompts.jsonl"),
                                               "trainer.total_training_steps=1", "trainer.export_hf_model=false"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto step = job.Steps("run").at(0);
  EXPECT_EQ(step.at("training/updates"), 0);
  EXPECT_FALSE(step.contains("critic/score/mean"));
  // A validation without a score has no number in its place, nowhere.
  EXPECT_THAT(result.output, HasSubstr("validation after step 1  none of the 8 answers has a score"));
  EXPECT_THAT(result.output, Not(HasSubstr("validation loss")));
  const auto validations = MetricLines(job.Contents("run/metrics.jsonl"), "val/samples");
  ASSERT_EQ(validations.size(), 2u);
  EXPECT_FALSE(validations[1].contains("val/loss"));
  EXPECT_FALSE(validations[1].contains("val/score/mean"));
  EXPECT_EQ(validations[1].at("val/reward/errors/raised"), 8);
  // Two validations and a step say it, in other numbers; the user is told once.
  const std::string warning = "answers have no reward and are left out; the first: raised: ";
  const size_t first = result.output.find(warning);
  ASSERT_NE(first, std::string::npos) << result.output;
  EXPECT_EQ(result.output.find(warning, first + 1), std::string::npos) << result.output;
  EXPECT_THAT(result.output, HasSubstr("\nwarning: "));
}

TEST(PolicyTest, EqualRewardsTeachNothing) {
  const PolicyJob job;
  const std::vector<std::string> overrides = {"reward={kind: format, options: {pattern: \".*\"}}",
                                              "trainer.total_training_steps=1"};
  const CommandResult result = job.Run("run", overrides);
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto step = job.Steps("run").at(0);
  EXPECT_EQ(step.at("training/flat_groups"), 4);
  EXPECT_EQ(step.at("critic/advantages/max"), 0);
  EXPECT_EQ(step.at("train/loss"), 0);
  EXPECT_EQ(step.at("train/grad_norm"), 0);
  std::vector<std::string> filtered = overrides;
  filtered.push_back("algorithm.filter_groups={enable: true, max_num_gen_batches: 3}");
  const CommandResult none = job.Run("filtered", filtered);
  ASSERT_EQ(none.exit_code, 0) << none.output << none.errors;
  const auto without = job.Steps("filtered").at(0);
  EXPECT_EQ(without.at("training/gen_batches"), 3);
  EXPECT_EQ(without.at("training/filtered_groups"), 12);
  EXPECT_EQ(without.at("training/missing_groups"), 4);
  EXPECT_EQ(without.at("training/updates"), 0);
  EXPECT_EQ(without.at("train/samples"), 0);
  EXPECT_EQ(without.at("critic/score/mean"), 1) << "what was generated was scored, and is told";
}

TEST(PolicyTest, BadInputIsNamed) {
  const PolicyJob job;
  job.Write("broken.py", "import no_such_module\n");
  job.Write("empty.jsonl", "{\"prompt\": \"\", \"data_source\": \"x\"}\n");
  job.Write("long.jsonl", "{\"prompt\": \"" + std::string(400, 'x') + "\", \"data_source\": \"x\"}\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"reward={kind: auto}"}, "data.train_files: "},
      {{"reward={kind: gsmk8}"}, "reward: "},
      {{"reward={custom_reward_function: {path: " + job.Path("broken.py") + "}}"}, "no_such_module"},
      {{"reward={custom_reward_function: {path: " + job.Path("absent.py") + "}}"}, "absent.py"},
      {{"data.train_files=" + job.Path("empty.jsonl")}, "empty.jsonl:1"},
      {{"data.train_files=" + job.Path("long.jsonl")}, "long.jsonl:1"},
      {{"data.max_response_length=100"}, "data.max_token_len_per_gpu: "},
      {{"rollout.temperature=-1"}, "rollout.temperature: "},
      {{"algorithm.adv_estimator=grop"}, "algorithm.adv_estimator: expected one of"},
      {{"data.format=text"}, "data.format: "}};
  for (const auto& [overrides, message] : cases) {
    const CommandResult result = job.Run("run", overrides);
    EXPECT_EQ(result.exit_code, 2) << overrides[0] << result.output << result.errors;
    EXPECT_THAT(result.output + result.errors, HasSubstr(message));
  }
}

TEST(PolicyTest, AnswersAreKeptToLookAt) {
  const PolicyJob job;
  const CommandResult result = job.Run("run", {"trainer.rollout_data_dir=" + job.Path("answers"),
                                               "trainer.total_training_steps=2", "trainer.n_gpus_per_node=2"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  for (const char* name : {"step_1.rank_0", "step_1.rank_1", "step_2.rank_0", "step_2.rank_1"}) {
    const std::string file = job.Contents(std::string("answers/") + name + ".parquet");
    ASSERT_GT(file.size(), 8u) << name;
    EXPECT_EQ(file.substr(0, 4), "PAR1");
    EXPECT_EQ(file.substr(file.size() - 4), "PAR1");
    EXPECT_THAT(file, HasSubstr("Say number "));
  }
}

TEST(PolicyTest, EvalScoresAModel) {
  const PolicyJob job;
  ASSERT_EQ(job.Run("run", {"trainer.total_training_steps=1"}).exit_code, 0);
  job.Write("sums.jsonl",
            "{\"prompt\": \"1 + 1\", \"data_source\": \"arithmetic\", \"ground_truth\": \"2\"}\n"
            "{\"prompt\": \"2 + 2\", \"data_source\": \"arithmetic\", \"ground_truth\": \"4\"}\n");
  const std::vector<std::string> arguments = {"eval",
                                              job.Path("run/huggingface"),
                                              "--data",
                                              job.Path("sums.jsonl"),
                                              "-n",
                                              "4",
                                              "--temperature",
                                              "1",
                                              "--max-new-tokens",
                                              "8",
                                              "--device",
                                              "cpu",
                                              "--max-prompt-length",
                                              "64"};
  const CommandResult result = RunSluice(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_THAT(result.output, HasSubstr("8 answers to 2 prompts"));
  for (const char* name : {"score/mean", "score/arithmetic/mean", "pass@1", "pass@2", "pass@4"}) {
    EXPECT_THAT(result.output, HasSubstr(name));
  }
  std::vector<std::string> python = arguments;
  job.Write("reward.py", "def compute_score(ground_truth, **kwargs): return float(ground_truth)\n");
  python.insert(python.end(), {"--set", "reward.custom_reward_function.path=" + job.Path("reward.py"), "-o", "json"});
  const CommandResult scored = RunSluice(python);
  ASSERT_EQ(scored.exit_code, 0) << scored.output << scored.errors;
  EXPECT_THAT(scored.output, HasSubstr("\"val/score/mean\":3"));
  EXPECT_EQ(RunSluice({"eval", job.Path("run/huggingface"), "--data", job.Path("prompts.jsonl")}).exit_code, 2)
      << "no rule for these data sources";
}

TEST(PolicyTest, ThePlanShowsTheDataFlow) {
  const PolicyJob job;
  const CommandResult result =
      RunSluice({"plan", job.Path("policy.yaml"), "model={path: " + job.Path("model") + ", init: random}",
                 "data.train_files=" + job.Path("prompts.jsonl"), "actor.use_kl_loss=true"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("data flow of a step"));
  EXPECT_THAT(result.output, HasSubstr("<- score, old_logprob, ref_logprob"));
  EXPECT_THAT(result.output, HasSubstr("key/value cache"));
  EXPECT_THAT(result.output, HasSubstr("answers per step            16"));
}

}  // namespace
}  // namespace sluice::testing
