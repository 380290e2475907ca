// Data flows of one's own, and pools, through the real programs, in miniature.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/e2e/policy_job.h"

namespace sluice::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// What the recipe grpo expands to, under names of its own.
constexpr char kGrpo[] =
    "dataflow=[{stage: answers, op: generate, model: actor, sampling: {n: 4}}, "
    "{stage: judge, op: reward, inputs: answers, reward: {kind: format, options: {pattern: '[aeiou]', mode: search}}}, "
    "{stage: old, op: logprob, model: actor, inputs: answers}, "
    "{stage: adv, op: advantage, inputs: [judge, old], estimator: grpo}, "
    "{stage: learn, op: update, model: actor, inputs: adv, batch_size: 1, grad_accum_steps: 2}]";

TEST(DataflowTest, ARecipeWrittenOutDoesTheSame) {
  const PolicyJob job;
  ASSERT_EQ(job.Run("recipe", {"actor.ppo_mini_batch_size=2"}).exit_code, 0);
  // The file has the sections too; where they say something else a stage's option would be refused.
  const CommandResult result = job.Run("flow", {"recipe=dataflow", kGrpo});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  ASSERT_FALSE(job.Weights("recipe").empty());
  EXPECT_EQ(job.Weights("flow"), job.Weights("recipe")) << "bit for bit";
  ExpectSameSteps(job, "recipe", "flow");
  EXPECT_EQ(job.Steps("flow")[0].at("training/updates"), 2);
}

TEST(DataflowTest, WithoutLogProbabilitiesThoseOfTheRolloutAreWhatTheUpdateStartsFrom) {
  const PolicyJob job;
  const CommandResult result =
      job.Run("run", {"recipe=dataflow",
                      "dataflow=[{stage: rollout, op: generate, model: actor}, {stage: score, op: reward, inputs: "
                      "rollout, sync: true}, {stage: adv, op: advantage, inputs: score}, {stage: update, op: update, "
                      "model: actor, inputs: adv}]"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  for (const auto& step : job.Steps("run")) {
    // Near to on-policy, as near as the two engines are.
    EXPECT_NE(step.at("actor/max_abs_log_ratio"), 0);
    EXPECT_LT(step.at("actor/max_abs_log_ratio"), 1e-4);
    EXPECT_GT(step.at("train/token_slots"), step.at("train/tokens"));
    EXPECT_FALSE(step.contains("timing_s/logprob"));
    EXPECT_TRUE(step.contains("timing_s/reward"));
  }
}

TEST(DataflowTest, ThePlanPrintsAFlowOfOnesOwnAndPools) {
  const PolicyJob job;
  const std::vector<std::string> plan =
      With({"plan", job.Path("policy.yaml"), "model={path: " + job.Path("model") + ", init: random}",
            "data.train_files=" + job.Path("prompts.jsonl"), "recipe=dataflow", kGrpo, "rollout.mode=one_step_off"},
           Pools(1, 1));
  const CommandResult result = RunSluice(plan);
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_THAT(result.output, HasSubstr("adv"));
  EXPECT_THAT(result.output, HasSubstr("<- judge, old"));
  EXPECT_THAT(result.output, HasSubstr("weight_sync"));
  EXPECT_THAT(result.output, HasSubstr("pools (rollout.mode one_step_off)"));
  EXPECT_THAT(result.output, HasSubstr("rank 1: rollout"));
}

TEST(DataflowTest, AFlowThatCannotBeIsTheUsersError) {
  const PolicyJob job;
  const std::string broken =
      "dataflow=[{stage: a, op: generate, model: actor, inputs: b}, {stage: b, op: reward, inputs: a}]";
  const CommandResult result = job.Run("run", {"recipe=dataflow", broken});
  EXPECT_EQ(result.exit_code, 2) << result.output << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("the stages a -> b -> a wait for each other"));
  const CommandResult mode = job.Run("run", {"rollout.mode=async"});
  EXPECT_EQ(mode.exit_code, 2);
  EXPECT_THAT(mode.errors, HasSubstr("rollout.mode: async generates while it trains"));
}

TEST(DataflowTest, StagesThatScoreAreAddedUp) {
  const PolicyJob job;
  job.Write("reward.py", kSomeFlat);
  const std::string python = "path: " + job.Path("reward.py");
  const std::string form = "kind: format, pattern: '[aeiou]', mode: search";
  const std::vector<std::string> common = {"data.val_files=" + job.Path("prompts.jsonl"), "trainer.test_freq=1"};
  // One stage with both as its terms, in the same order.
  const CommandResult one =
      job.Run("one", With(common, {"reward={terms: {a: {kind: python, " + python + "}, b: {" + form + "}}}"}));
  ASSERT_EQ(one.exit_code, 0) << one.output << one.errors;
  const std::vector<std::string> several =
      With(common, {"recipe=dataflow", "reward={kind: auto}",
                    "dataflow=[{stage: answers, op: generate, model: actor, sampling: {n: 4}}, "
                    "{stage: a, op: reward, inputs: answers, reward: {custom_reward_function: {" +
                        python +
                        "}}}, "
                        "{stage: b, op: reward, inputs: answers, sync: true, reward: {terms: {form: {" +
                        form +
                        "}}}}, "
                        "{stage: old, op: logprob, model: actor, inputs: answers}, "
                        "{stage: adv, op: advantage, inputs: [a, b, old], estimator: grpo}, "
                        "{stage: learn, op: update, model: actor, inputs: adv}]"});
  for (const bool apart : {false, true}) {
    const std::string run = apart ? "apart" : "several";
    const CommandResult result = job.Run(run, apart ? With(several, Pools(1, 1)) : several);
    ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
    EXPECT_EQ(job.Weights(run), job.Weights("one")) << run << ": bit for bit";
    const auto steps = job.Steps(run), expected = job.Steps("one");
    ASSERT_EQ(steps.size(), expected.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].at("critic/score/mean"), expected[i].at("critic/score/mean"));
      EXPECT_EQ(steps[i].at("reward/a/score"), expected[i].at("reward/a/score"));
      EXPECT_EQ(steps[i].at("reward/a/acc"), expected[i].at("reward/a/acc"));
      EXPECT_EQ(steps[i].at("reward/b/form/score"), expected[i].at("reward/b/score"));
      EXPECT_EQ(steps[i].at("reward/b/score"), expected[i].at("reward/b/score")) << "the stage's own";
      EXPECT_GT(steps[i].at("timing_s/reward/a"), 0);
      EXPECT_GT(steps[i].at("timing_s/reward/b"), 0);
    }
    const auto validations = job.Validations(run), validated = job.Validations("one");
    ASSERT_EQ(validations.size(), 4u);
    for (size_t i = 0; i < validations.size(); ++i) {
      EXPECT_EQ(validations[i].at("val/score/mean"), validated[i].at("val/score/mean"));
      EXPECT_EQ(validations[i].at("val/reward/a/acc"), validated[i].at("val/reward/a/acc"));
    }
  }
}

TEST(DataflowTest, AnAnswerThatOneStageCannotScoreHasNone) {
  const PolicyJob job;
  job.Write("some.py", R"(
def compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs):
    if extra_info["index"] % 4 == 0:
        raise ValueError("cannot")
    return float(len(solution_str) % 7)
)");
  const CommandResult result =
      job.Run("run", {"recipe=dataflow", "reward={kind: auto}", "trainer.total_training_steps=2",
                      "dataflow=[{stage: answers, op: generate, model: actor, sampling: {n: 4}}, "
                      "{stage: some, op: reward, inputs: answers, reward: {custom_reward_function: {path: " +
                          job.Path("some.py") +
                          "}}}, {stage: all, op: reward, inputs: answers, reward: {kind: format, options: {pattern: "
                          "'[aeiou]', mode: search}}}, "
                          "{stage: adv, op: advantage, inputs: [some, all], estimator: rloo}, "
                          "{stage: learn, op: update, model: actor, inputs: adv}]"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  double failed = 0, learned = 0;
  for (const auto& step : job.Steps("run")) {
    failed += step.contains("reward/some/errors/raised") ? step.at("reward/some/errors/raised") : 0;
    learned += step.at("training/learned_answers") * 16;
    EXPECT_FALSE(step.contains("reward/all/errors/raised"));
  }
  EXPECT_EQ(failed, 8) << "two of the eight prompts, with four answers each";
  EXPECT_EQ(learned, 24);
}

TEST(DataflowTest, StepsAreFollowedByValidationAndCheckpoints) {
  const PolicyJob job;
  const std::string stages = kGrpo;
  const CommandResult result =
      job.Run("run", {"recipe=dataflow", "data.val_files=" + job.Path("prompts.jsonl"),
                      "trainer.val_before_train=false", "trainer.total_training_steps=4", "trainer.save_freq=2",
                      stages.substr(0, stages.size() - 1) +
                          ", {stage: check, op: evaluate, model: actor, inputs: learn, every: 3}, "
                          "{stage: save, op: checkpoint, inputs: check, every: 2}]"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_EQ(job.Validations("run").size(), 2u) << "after step 3, and after the last";
  for (int step = 1; step <= 4; ++step) {
    EXPECT_EQ(std::filesystem::exists(job.Path("run/global_step_" + std::to_string(step))), step % 2 == 0) << step;
  }
}

TEST(PoolsTest, APoolThatOnlyAnswersChangesNothing) {
  const PolicyJob job;
  const std::vector<std::string> overrides = {"actor.use_kl_loss=true", "actor.ppo_mini_batch_size=2",
                                              "data.val_files=" + job.Path("prompts.jsonl"), "trainer.test_freq=1"};
  const CommandResult colocated = job.Run("colocated", overrides);
  ASSERT_EQ(colocated.exit_code, 0) << colocated.output << colocated.errors;
  const CommandResult apart = job.Run("apart", With(overrides, Pools(1, 1)));
  ASSERT_EQ(apart.exit_code, 0) << apart.output << apart.errors;
  EXPECT_EQ(job.Weights("apart"), job.Weights("colocated")) << "bit for bit";
  ExpectSameSteps(job, "colocated", "apart");
  const auto one = job.Validations("colocated"), other = job.Validations("apart");
  ASSERT_EQ(one.size(), 4u);
  ASSERT_EQ(other.size(), 4u);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(other[i].at("val/score/mean"), one[i].at("val/score/mean"));
  for (const auto& step : job.Steps("apart")) {
    EXPECT_GT(step.at("dataflow/received_bytes/old_logprob"), 16 * 8 * 4) << "the answers";
    EXPECT_GT(step.at("dataflow/received_bytes/advantage"), 0) << "their scores";
    for (const char* phase : {"generate", "reward", "logprob", "ref_logprob", "advantage", "update"}) {
      EXPECT_TRUE(step.contains(std::string("timing_s/") + phase)) << phase;
    }
  }
}

TEST(PoolsTest, AReferenceOnAPoolOfItsOwnAndBaselinesComeToTheActor) {
  const PolicyJob job;
  const std::vector<std::string> overrides = {"algorithm.adv_estimator=remax", "algorithm.use_kl_in_reward=true",
                                              "trainer.total_training_steps=2"};
  ASSERT_EQ(job.Run("colocated", overrides).exit_code, 0);
  const CommandResult apart = job.Run(
      "apart", With(overrides, {"trainer.n_gpus_per_node=3",
                                "pools=[{pool: a, ranks: 1, roles: actor}, {pool: b, ranks: 1, roles: rollout}, "
                                "{pool: c, ranks: 1, roles: ref}]"}));
  ASSERT_EQ(apart.exit_code, 0) << apart.output << apart.errors;
  EXPECT_EQ(job.Weights("apart"), job.Weights("colocated"));
  ExpectSameSteps(job, "colocated", "apart");
}

TEST(PoolsTest, PoolsOfSeveralRanksDealTheSamples) {
  const PolicyJob job;
  const std::vector<std::string> overrides = {"trainer.export_hf_model=false", "trainer.total_training_steps=2"};
  ASSERT_EQ(job.Run("colocated", overrides).exit_code, 0);
  const CommandResult apart = job.Run("apart", With(overrides, Pools(2, 2)));
  ASSERT_EQ(apart.exit_code, 0) << apart.output << apart.errors;
  const auto one = job.Steps("colocated"), four = job.Steps("apart");
  ASSERT_EQ(one.size(), four.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(four[i].at("train/samples"), 16);
    EXPECT_EQ(four[i].at("train/tokens"), one[i].at("train/tokens"));
    EXPECT_NEAR(four[i].at("critic/score/mean"), one[i].at("critic/score/mean"), 1e-12);
    EXPECT_NEAR(four[i].at("train/loss"), one[i].at("train/loss"), 1e-5);
    EXPECT_NEAR(four[i].at("train/grad_norm"), one[i].at("train/grad_norm"), 1e-4);
    EXPECT_NEAR(four[i].at("perf/model_flops") / one[i].at("perf/model_flops"), 1, 1e-9);
  }
}

TEST(PoolsTest, OneStepOffTrainsOnAnswersOfTheWeightsBefore) {
  const PolicyJob job;
  const std::vector<std::string> overrides =
      With({"rollout.mode=one_step_off", "trainer.total_training_steps=5", "trainer.save_freq=-1"}, Pools(1, 1));
  for (const char* run : {"first", "second"}) {
    const CommandResult result = job.Run(run, overrides);
    ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  }
  const auto steps = job.Steps("first");
  ASSERT_EQ(steps.size(), 5u);
  double furthest = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("training/staleness"), i == 0 ? 0 : 1) << i;
    EXPECT_EQ(steps[i].contains("timing_s/weight_sync"), i == 1 || i == 2 || i == 3)
        << i << ": the weights of step 1 to 3 are answered with, those of 4 and 5 need not be sent";
    furthest = std::max(furthest, steps[i].at("training/rollout_logprob_diff_mean"));
  }
  EXPECT_GT(furthest, 1e-4) << "what the trainer computes anew differs from what older weights gave";
  EXPECT_EQ(job.Weights("first"), job.Weights("second")) << "however long which stage took";
  ExpectSameSteps(job, "first", "second");
}

TEST(PoolsTest, ATraceShowsTheNextAnswersBegunBeforeTheUpdateEnds) {
  const PolicyJob job;
  const CommandResult result =
      job.Run("run", With({"--trace", job.Path("trace.json"), "rollout.mode=one_step_off",
                           "trainer.total_training_steps=4", "trainer.save_freq=-1", "trainer.export_hf_model=false"},
                          Pools(1, 1)));
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_THAT(result.output, ContainsRegex("4 steps in [0-9.]+ s; two stages or more on devices at once"));
  // By op and step: microseconds.
  std::map<std::pair<std::string, int>, std::pair<double, double>> times;
  const nlohmann::json trace = nlohmann::json::parse(job.Contents("trace.json"));
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    times[{event["cat"], event["args"]["step"]}] = {begin, begin + event["dur"].get<double>()};
  }
  for (int step = 1; step <= 4; ++step) {
    ASSERT_TRUE(times.contains({"generate", step}) && times.contains({"update", step})) << step;
    EXPECT_LE(times.at({"generate", step}).second, times.at({"logprob", step}).first) << step;
    EXPECT_LE(times.at({"logprob", step}).second, times.at({"update", step}).first) << step;
    if (step == 4) continue;
    EXPECT_LT(times.at({"generate", step + 1}).first, times.at({"update", step}).second) << step;
  }
}

TEST(PoolsTest, AsynchronousTrainingKeepsItsBound) {
  const PolicyJob job;
  const CommandResult result =
      job.Run("run", With({"rollout.mode=async", "rollout.max_staleness=2", "trainer.total_training_steps=6",
                           "trainer.save_freq=-1", "trainer.export_hf_model=false"},
                          Pools(1, 1)));
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto steps = job.Steps("run");
  ASSERT_EQ(steps.size(), 6u);
  for (const auto& step : steps) EXPECT_LE(step.at("training/staleness"), 2);
}

TEST(PoolsTest, AnEngineOfEitherPoolThatDiesIsNamedAndTheRunEndsTheSame) {
  const PolicyJob job;
  for (const std::string mode : {"sync", "one_step_off"}) {
    const std::vector<std::string> overrides =
        With({"rollout.mode=" + mode, "trainer.total_training_steps=4", "trainer.save_freq=2"}, Pools(1, 1));
    const std::string calm = "calm-" + mode;
    const CommandResult undisturbed = job.Run(calm, overrides);
    ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.output << undisturbed.errors;
    // In each case the third time is after the checkpoint, and the next attempt has less to do.
    std::vector<std::pair<std::string, std::string>> failpoints = {{"engine.stage.generate=3", "rank 1"},
                                                                   {"engine.stage.update=3", "rank 0"}};
    if (mode == "sync") failpoints.emplace_back("engine.weight_bucket=3", "rank ");
    for (const auto& [failpoint, rank] : failpoints) {
      const std::string run = "killed-" + mode + failpoint;
      const CommandResult killed = job.Run(run, overrides, {{"SLUICE_FAILPOINTS", failpoint}});
      ASSERT_EQ(killed.exit_code, 0) << failpoint << killed.output << killed.errors;
      EXPECT_THAT(killed.output + killed.errors, HasSubstr("was lost"));
      EXPECT_THAT(killed.output + killed.errors, HasSubstr(rank));
      EXPECT_EQ(job.Weights(run), job.Weights(calm)) << mode << " " << failpoint;
    }
  }
}

TEST(PoolsTest, PoolsOnHostsOfTheirOwnReachEachOther) {
  const PolicyJob job;
  ASSERT_EQ(job.Run("colocated").exit_code, 0);
  const std::string controller_address = "unix:" + job.Path("c.sock");
  const Daemon controller("sluice-controller", {"--listen", controller_address, "--state-dir", job.Path("controller")},
                          job.Path("controller.log"));
  // As on two hosts: each has one rank, and an address of its own.
  std::vector<std::unique_ptr<Daemon>> workers;
  for (const std::string name : {"w1", "w2"}) {
    const std::vector<std::string> arguments = {
        "--controller", controller_address, "--id",         name,           "--listen",
        "127.0.0.1:0",  "--state-dir",      job.Path(name), "--rank-slots", "1"};
    workers.push_back(std::make_unique<Daemon>("sluice-worker", arguments, job.Path(name + ".log")));
  }
  std::vector<std::string> arguments =
      With({"--controller", controller_address, "submit", "--wait", job.Path("policy.yaml"),
            "model={path: " + job.Path("model") + ", init: random}", "data.train_files=" + job.Path("prompts.jsonl"),
            "trainer.default_local_dir=" + job.Path("apart")},
           Pools(1, 1));
  arguments.insert(arguments.end(), {"trainer.nnodes=2", "trainer.n_gpus_per_node=1"});
  CommandResult result;
  for (int i = 0; i < 100; ++i) {
    result = RunSluice(arguments);
    if (result.exit_code != 4) break;  // nobody answers yet
  }
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors << job.Contents("controller.log");
  EXPECT_EQ(job.Weights("apart"), job.Weights("colocated"));
}

}  // namespace
}  // namespace sluice::testing
