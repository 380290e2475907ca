// Further models in reinforcement learning, through the real programs in miniature: a reward model, a teacher.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/policy_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A reward model that learned to like the letter e better than x; in Path("rm/huggingface").
void TrainRewardModel(const PolicyJob& job) {
  std::string rows;
  for (int i = 0; i < 16; ++i) {
    const std::string prompt = R"({"prompt": "Say number )" + std::to_string(i) + "\", ";
    rows += prompt + R"("chosen": ")" + std::string(static_cast<size_t>(1 + i % 4), 'e') + R"(", "rejected": ")" +
            std::string(static_cast<size_t>(1 + i % 3), 'x') + "\"}\n";
  }
  job.Write("pairs.jsonl", rows);
  job.Write("rm.yaml", R"(recipe: reward_model
data: {max_length: 48, train_batch_size: 8, max_token_len_per_gpu: 256}
engine: {device: cpu, cpu_threads: 1}
optim: {lr: 5e-3, lr_scheduler_type: constant, weight_decay: 0}
trainer: {total_training_steps: 30, seed: 7}
)");
  const CommandResult result =
      RunSluice({"run", job.Path("rm.yaml"), "model={path: " + job.Path("model") + ", init: random}",
                 "data.train_files=" + job.Path("pairs.jsonl"), "trainer.default_local_dir=" + job.Path("rm")});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
}

std::string ByModel(const PolicyJob& job) {
  return "reward={kind: model, options: {path: " + job.Path("rm/huggingface") + "}}";
}

TEST(RewardModelTest, JudgesAnswersBesideRules) {
  const PolicyJob job;
  TrainRewardModel(job);
  const std::string sum = "reward={terms: {liked: {kind: model, weight: 0.5, path: " + job.Path("rm/huggingface") +
                          "}, short: {kind: length, max_tokens: 8, buffer: 4}}}";
  const CommandResult result = job.Run("run", {sum, "data.val_files=" + job.Path("prompts.jsonl")});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  for (const auto& step : job.Steps("run")) {
    EXPECT_NEAR(step.at("critic/score/mean"), 0.5 * step.at("reward/liked/score") + step.at("reward/short/score"),
                1e-6);
    EXPECT_NE(step.at("reward/liked/score"), 0);
    EXPECT_EQ(step.at("actor/max_abs_log_ratio"), 0);
  }
  EXPECT_EQ(job.Validations("run").size(), 2u);
  // As two stages, of which the rule's runs beside the model's.
  const CommandResult stages = job.Run(
      "stages", {"recipe=dataflow", "reward={kind: auto}", "data.val_files=" + job.Path("prompts.jsonl"),
                 "dataflow=[{stage: answers, op: generate, model: actor}, "
                 "{stage: liked, op: reward, model: reward, inputs: answers, reward: {terms: {model: {kind: model, "
                 "weight: 0.5, path: " +
                     job.Path("rm/huggingface") +
                     "}}}}, {stage: short, op: reward, inputs: answers, reward: {kind: length, options: {max_tokens: "
                     "8, buffer: 4}}}, {stage: old, op: logprob, model: actor, inputs: answers}, "
                     "{stage: adv, op: advantage, inputs: [liked, short, old]}, "
                     "{stage: learn, op: update, model: actor, inputs: adv}]"});
  ASSERT_EQ(stages.exit_code, 0) << stages.output << stages.errors;
  EXPECT_EQ(job.Weights("stages"), job.Weights("run"));
  for (size_t i = 0; i < 3; ++i) {
    const auto step = job.Steps("stages")[i], sum_of_terms = job.Steps("run")[i];
    EXPECT_EQ(step.at("reward/liked/model/score"), sum_of_terms.at("reward/liked/score"));
    EXPECT_EQ(step.at("reward/short/score"), sum_of_terms.at("reward/short/score"));
    EXPECT_EQ(step.at("perf/model_flops"), sum_of_terms.at("perf/model_flops"));
  }
  // What it computes is counted.
  const CommandResult without = job.Run("without", {"trainer.total_training_steps=1"});
  ASSERT_EQ(without.exit_code, 0) << without.output << without.errors;
  const auto flops_per_token = [&](const std::string& run) {
    return job.Steps(run)[0].at("perf/model_flops") / job.Steps(run)[0].at("train/tokens");
  };
  EXPECT_GT(flops_per_token("run"), 1.05 * flops_per_token("without"));
}

TEST(RewardModelTest, TwoRanksDoWhatOneDoes) {
  const PolicyJob job;
  TrainRewardModel(job);
  const std::vector<std::string> one = {ByModel(job), "trainer.export_hf_model=false"};
  std::vector<std::string> two = one;
  two.push_back("trainer.n_gpus_per_node=2");
  const CommandResult first = job.Run("one", one), second = job.Run("two", two);
  ASSERT_EQ(first.exit_code, 0) << first.output << first.errors;
  ASSERT_EQ(second.exit_code, 0) << second.output << second.errors;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(job.Steps("two")[i].at("critic/score/mean"), job.Steps("one")[i].at("critic/score/mean"), 1e-6);
    EXPECT_NEAR(job.Steps("two")[i].at("train/loss"), job.Steps("one")[i].at("train/loss"), 1e-5);
  }
}

TEST(RewardModelTest, IsLearnedFrom) {
  const PolicyJob job;
  TrainRewardModel(job);
  const CommandResult result =
      job.Run("run", {ByModel(job), "rollout.n=8", "data.train_batch_size=8", "trainer.total_training_steps=25",
                      "trainer.save_freq=-1", "optim.lr=5e-3", "trainer.export_hf_model=false"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto steps = job.Steps("run");
  ASSERT_EQ(steps.size(), 25u);
  EXPECT_GT(steps.back().at("critic/score/mean"), steps.front().at("critic/score/mean") + 1);
}

TEST(RewardModelTest, ThePlanHasItsMemory) {
  const PolicyJob job;
  TrainRewardModel(job);
  const CommandResult result =
      RunSluice({"plan", job.Path("policy.yaml"), "model={path: " + job.Path("model") + ", init: random}",
                 "data.train_files=" + job.Path("prompts.jsonl"), ByModel(job)});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("  reward model  "));
  EXPECT_THAT(result.output, HasSubstr("reward        reward  <- rollout"));
}

TEST(RewardModelTest, BadInputIsNamed) {
  const PolicyJob job;
  ASSERT_EQ(job.Run("language", {"trainer.total_training_steps=1"}).exit_code, 0);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"reward={kind: model}", "reward: path: reward model needs it"},
      {"reward={kind: model, options: {path: rm}}", "reward: path: rm must be an absolute path"},
      {"reward={kind: model, options: {path: " + job.Path("absent") + "}}", "reward.options.path: "},
      {"reward={terms: {a: {kind: model, path: " + job.Path("model") + "}}}", "reward.terms.a.path: "},
      {"reward={kind: model, options: {path: " + job.Path("language/huggingface") + "}}",
       "no score.weight: it is no reward model"}};
  for (const auto& [override, message] : cases) {
    const CommandResult result = job.Run("run", {override});
    EXPECT_EQ(result.exit_code, 2) << override << result.output << result.errors;
    EXPECT_THAT(result.output + result.errors, HasSubstr(message));
  }
}

// --- distillation ---

// A model that answers with vowels; in Path("teacher/huggingface").
void TrainTeacher(const PolicyJob& job) {
  const CommandResult result =
      job.Run("teacher", {"rollout.n=8", "data.train_batch_size=8", "trainer.total_training_steps=20",
                          "trainer.save_freq=-1", "optim.lr=5e-3", "trainer.seed=3"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
}

std::vector<std::string> FromTeacher(const PolicyJob& job, const std::vector<std::string>& overrides) {
  std::vector<std::string> all = {"recipe=distillation", "reward={}", "rollout={n: 4}",
                                  "reference={path: " + job.Path("teacher/huggingface") + "}"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return all;
}

TEST(DistillationTest, TheDivergenceFromTheTeacherFalls) {
  const PolicyJob job;
  TrainTeacher(job);
  const CommandResult result =
      job.Run("run", FromTeacher(job, {"trainer.total_training_steps=40", "trainer.save_freq=-1", "optim.lr=5e-3",
                                       "data.train_batch_size=8", "data.val_files=" + job.Path("prompts.jsonl"),
                                       "rollout.val_kwargs={n: 4, temperature: 1}"}));
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_THAT(result.output, HasSubstr("validation after step 40  loss "));
  EXPECT_THAT(result.output, Not(HasSubstr("score ")));
  const auto steps = job.Steps("run");
  ASSERT_EQ(steps.size(), 40u);
  EXPECT_EQ(steps[0].at("actor/pg_loss"), 0);
  EXPECT_GT(steps[0].at("actor/kl_loss"), 0.1);
  EXPECT_EQ(steps[0].at("train/loss"), steps[0].at("actor/kl_loss"));
  const auto validations = MetricLines(job.Contents("run/metrics.jsonl"), "val/loss");
  ASSERT_EQ(validations.size(), 2u);
  EXPECT_GT(validations[0].at("val/loss"), 0.1);
  EXPECT_LT(validations[1].at("val/loss"), 0.5 * validations[0].at("val/loss"));
  EXPECT_FALSE(validations[1].contains("val/score/mean"));
}

TEST(DistillationTest, ATeacherOfItselfTeachesNothing) {
  const PolicyJob job;
  TrainTeacher(job);
  const CommandResult result =
      job.Run("run", FromTeacher(job, {"model={path: " + job.Path("teacher/huggingface") + "}",
                                       "trainer.total_training_steps=1", "trainer.export_hf_model=false"}));
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_EQ(job.Steps("run")[0].at("actor/kl_loss"), 0);
  EXPECT_EQ(job.Steps("run")[0].at("train/grad_norm"), 0);
}

TEST(DistillationTest, RanksAndRewardsGoTogetherWithIt) {
  const PolicyJob job;
  TrainTeacher(job);
  const std::vector<std::string> one = FromTeacher(
      job, {"reward={kind: format, options: {pattern: \"[aeiou]\", mode: search}}", "trainer.export_hf_model=false"});
  std::vector<std::string> two = one;
  two.push_back("trainer.n_gpus_per_node=2");
  const CommandResult first = job.Run("one", one), second = job.Run("two", two);
  ASSERT_EQ(first.exit_code, 0) << first.output << first.errors;
  ASSERT_EQ(second.exit_code, 0) << second.output << second.errors;
  const auto a = job.Steps("one"), b = job.Steps("two");
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].contains("critic/score/mean"));
    for (const char* name : {"train/loss", "actor/kl_loss"}) EXPECT_NEAR(a[i].at(name), b[i].at(name), 1e-5) << name;
  }
}

TEST(DistillationTest, BadInputIsNamed) {
  const PolicyJob job;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"recipe=distillation", "reward={}"}, "reference.path: is needed by recipe distillation"},
      {{"reference.path=" + job.Path("model")}, "reference.path: has no effect without actor.use_kl_loss"},
      {{"recipe=distillation", "reward={}", "reference.path=" + job.Path("absent")}, "reference.path: "}};
  for (const auto& [overrides, message] : cases) {
    const CommandResult result = job.Run("run", overrides);
    EXPECT_EQ(result.exit_code, 2) << overrides[0] << result.output << result.errors;
    EXPECT_THAT(result.output + result.errors, HasSubstr(message));
  }
}

}  // namespace
}  // namespace sluice::testing
