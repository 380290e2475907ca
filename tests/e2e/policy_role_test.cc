// Roles of two pools in one process, asked by hand for what a controller would never ask: each refuses what is not its
// turn, and says why.

#include <arrow/api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include "common/config/job_reader.h"
#include "common/testing/status_matchers.h"
#include "engine/exchange/batch_service.h"
#include "engine/roles/make_role.h"
#include "tests/e2e/policy_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

// The job with a model of random weights, and `overrides`.
absl::StatusOr<v1::JobSpec> SpecOf(const PolicyJob& job, const std::vector<std::string>& overrides) {
  LoadOptions options;
  options.file = job.Path("policy.yaml");
  options.overrides = {"model={path: " + job.Path("model") + ", init: random}",
                       "data.train_files=" + job.Path("prompts.jsonl"), "trainer.default_local_dir=" + job.Path("run")};
  options.overrides.insert(options.overrides.end(), overrides.begin(), overrides.end());
  options.working_folder = std::filesystem::current_path().string();
  return LoadJobSpec(options);
}

class PolicyRoleTest : public ::testing::Test {
 protected:
  void SetUp() override { Open({}); }

  void Open(const std::vector<std::string>& overrides) {
    std::vector<std::string> all = {
        "trainer.n_gpus_per_node=2",
        "pools=[{pool: train, ranks: 1, roles: actor}, {pool: answer, ranks: 1, roles: rollout}]",
        "engine.collective_timeout_s=60"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, SpecOf(job_, all));
    v1::InitializeOp op;
    *op.mutable_spec() = spec;
    op.set_world_size(2);
    op.set_rendezvous_address("file:" + job_.Path("rendezvous"));
    actor_ = engine::MakeRole(spec, {.rank = 0});
    rollout_ = engine::MakeRole(spec, {.rank = 1});
    Both([&](engine::Role& role) { EXPECT_OK(role.Initialize(op)); });
  }

  // On a thread each: what both do together needs both.
  void Both(const std::function<void(engine::Role&)>& body) {
    std::thread other([&] { body(*rollout_); });
    body(*actor_);
    other.join();
  }

  static v1::DataflowOp Op(const std::string& op, int64_t step, int64_t version) {
    v1::DataflowOp request;
    request.set_op(op);
    request.set_stage(op);
    request.set_step(step);
    request.set_weight_version(version);
    return request;
  }

  // Answers and scores of a step, for the actor to fetch.
  std::vector<v1::BatchReference> Answers(int64_t step, int64_t version) {
    std::vector<v1::BatchReference> references;
    for (const char* name : {"generate", "reward"}) {
      v1::DataflowOp op = Op(name, step, version);
      op.set_readers(1);
      op.set_beside(op.op() == "reward");
      const auto result = rollout_->RunDataflowStage(op);
      EXPECT_OK(result);
      if (result.ok()) references.push_back(result->outputs(0));
    }
    return references;
  }

  PolicyJob job_;
  std::unique_ptr<engine::Role> actor_, rollout_;
};

TEST_F(PolicyRoleTest, EachPoolDoesWhatIsItsOwnAndInItsTurn) {
  EXPECT_THAT(actor_->RunDataflowStage(Op("generate", 1, 0)).status(),
              StatusIs(kPrecondition, HasSubstr("generate is not a stage of pool train")));
  EXPECT_THAT(rollout_->RunDataflowStage(Op("update", 1, 0)).status(),
              StatusIs(kPrecondition, HasSubstr("update is not a stage of pool answer")));
  EXPECT_THAT(rollout_->RunDataflowStage(Op("generate", 1, 1)).status(),
              StatusIs(kPrecondition, HasSubstr("weights of version 1, but those here are of 0")));
  EXPECT_THAT(actor_->RunDataflowStage(Op("logprob", 2, 0)).status(),
              StatusIs(kPrecondition, HasSubstr("logprob of step 2 is asked for, but 0 steps are done")));
  EXPECT_THAT(actor_->RunDataflowStage(Op("logprob", 1, 0)).status(),
              StatusIs(kPrecondition, HasSubstr("logprob of step 1 needs generate first")));
  EXPECT_THAT(actor_->RunDataflowStage(Op("weight_sync", 1, 1)).status(),
              StatusIs(kPrecondition, HasSubstr("weights of version 1 are asked for, but 0 steps are done")));
}

TEST_F(PolicyRoleTest, SamplesAreFetchedOnceAndWeightsAreOfTheirVersion) {
  const std::vector<v1::BatchReference> made = Answers(1, 0);
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].rows(), 16);
  EXPECT_GT(made[0].bytes(), 16 * 8 * 8) << "tokens and their log-probabilities";
  v1::DataflowOp logprob = Op("logprob", 1, 0), advantage = Op("advantage", 1, 0), update = Op("update", 1, 0);
  *logprob.add_inputs() = made[0];
  ASSERT_OK_AND_ASSIGN(const auto scored, actor_->RunDataflowStage(logprob));
  EXPECT_EQ(scored.samples(), 16);
  EXPECT_GT(scored.received_bytes(), 16 * 8 * 8);
  *advantage.add_inputs() = made[1];
  ASSERT_OK(actor_->RunDataflowStage(advantage));
  update.set_ends_step(true);
  ASSERT_OK_AND_ASSIGN(const auto ended, actor_->RunDataflowStage(update));
  EXPECT_EQ(ended.ended_step().samples(), 16);
  v1::DataflowOp again = Op("logprob", 2, 0);
  *again.add_inputs() = made[0];
  EXPECT_THAT(actor_->RunDataflowStage(again).status(), StatusIs(kPrecondition, HasSubstr("given samples of step 1")));
  again.mutable_inputs(0)->set_step(2);
  EXPECT_THAT(actor_->RunDataflowStage(again).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("what generate of step 2 made on rank 1")));

  // Without new weights the answers are older than rollout.mode sync allows.
  const std::vector<v1::BatchReference> stale = Answers(2, 0);
  v1::DataflowOp train = Op("logprob", 2, 1);
  *train.add_inputs() = stale[0];
  EXPECT_THAT(actor_->RunDataflowStage(train).status(),
              StatusIs(kPrecondition, HasSubstr("answers of weights of version 0 are to train those of 1")));
  Both([&](engine::Role& role) { EXPECT_OK(role.RunDataflowStage(Op("weight_sync", 1, 1))); });
  EXPECT_THAT(rollout_->RunDataflowStage(Op("generate", 2, 0)).status(),
              StatusIs(kPrecondition, HasSubstr("weights of version 0, but those here are of 1")));
  const std::vector<v1::BatchReference> fresh = Answers(2, 1);
  EXPECT_EQ(fresh[0].weight_version(), 1);
  train.clear_inputs();
  *train.add_inputs() = fresh[0];
  EXPECT_OK(actor_->RunDataflowStage(train));
}

class FilteringRoleTest : public PolicyRoleTest {
 protected:
  void SetUp() override {
    job_.Write("reward.py", kSomeFlat);
    Open({"recipe=dapo", "reward={custom_reward_function: {path: " + job_.Path("reward.py") + "}}",
          "algorithm.filter_groups.metric=acc"});
  }

  // What the filter of a step leaves.
  v1::BatchReference Left(int64_t step) {
    for (const char* name : {"generate", "reward", "filter"}) {
      v1::DataflowOp op = Op(name, step, 0);
      op.set_beside(op.op() == "reward");
      op.set_readers(op.op() == "filter" ? 2 : 0);
      const auto result = rollout_->RunDataflowStage(op);
      EXPECT_OK(result);
      if (result.ok() && op.op() == "filter") return result->outputs(0);
    }
    return {};
  }

  static std::shared_ptr<arrow::RecordBatch> Fetch(const v1::BatchReference& reference) {
    const auto fetched =
        engine::FetchBatch(reference.address(), reference.id(), engine::RowChoice(), absl::Seconds(30));
    EXPECT_OK(fetched);
    return fetched->batch;
  }
};

TEST_F(FilteringRoleTest, AFilterIsOfThePoolThatAnswersAndOfItsWeights) {
  EXPECT_THAT(actor_->RunDataflowStage(Op("filter", 1, 0)).status(),
              StatusIs(kPrecondition, HasSubstr("filter is not a stage of pool train")));
  EXPECT_THAT(rollout_->RunDataflowStage(Op("filter", 1, 0)).status(),
              StatusIs(kPrecondition, HasSubstr("filter of step 1 needs reward first")));
  EXPECT_THAT(
      rollout_->RunDataflowStage(Op("filter", 1, 1)).status(),
      StatusIs(kPrecondition, HasSubstr("filter of step 1 is asked for with weights of version 1, but those here")));
}

TEST_F(FilteringRoleTest, AStepThatBeginsAgainTakesTheSamePrompts) {
  const auto first = Fetch(Left(1)), again = Fetch(Left(1));
  EXPECT_EQ(first->num_rows(), 16);
  EXPECT_TRUE(again->Equals(*first));
  // What the actor has of it is all that it needs before it trains.
  v1::DataflowOp logprob = Op("logprob", 1, 0), advantage = Op("advantage", 1, 0);
  *logprob.add_inputs() = Left(1);
  ASSERT_OK_AND_ASSIGN(const auto scored, actor_->RunDataflowStage(logprob));
  EXPECT_EQ(scored.samples(), 16);
  EXPECT_OK(actor_->RunDataflowStage(advantage));

  const auto second = Fetch(Left(2)), second_again = Fetch(Left(2));
  EXPECT_FALSE(second->Equals(*first));
  EXPECT_TRUE(second_again->Equals(*second));
}

TEST(SeveralRewardsTest, TheStepGoesOnOnceAllOfThemHaveScored) {
  const PolicyJob job;
  ASSERT_OK_AND_ASSIGN(
      const v1::JobSpec spec,
      SpecOf(job, {"recipe=dataflow", "reward={kind: auto}",
                   "dataflow=[{stage: answers, op: generate, model: actor}, "
                   "{stage: a, op: reward, inputs: answers, reward: {kind: format, options: {pattern: x}}}, "
                   "{stage: b, op: reward, inputs: answers, reward: {kind: format, options: {pattern: y}}}, "
                   "{stage: adv, op: advantage, inputs: [a, b]}, "
                   "{stage: learn, op: update, model: actor, inputs: adv}]"}));
  const auto role = engine::MakeRole(spec, {.rank = 0});
  v1::InitializeOp initialize;
  *initialize.mutable_spec() = spec;
  initialize.set_world_size(1);
  ASSERT_OK(role->Initialize(initialize));
  const auto run = [&](const char* op, const char* stage) {
    v1::DataflowOp request;
    request.set_op(op);
    request.set_stage(stage);
    request.set_step(1);
    return role->RunDataflowStage(request).status();
  };
  ASSERT_OK(run("generate", "answers"));
  ASSERT_OK(run("reward", "b"));
  ASSERT_OK(run("reward", "b")) << "twice is not both";
  // What cannot be drops the step: it begins again.
  EXPECT_THAT(run("advantage", "adv"), StatusIs(kPrecondition, HasSubstr("advantage of step 1 needs reward first")));
  ASSERT_OK(run("generate", "answers"));
  ASSERT_OK(run("reward", "b"));
  ASSERT_OK(run("reward", "a"));
  EXPECT_OK(run("advantage", "adv"));
  EXPECT_THAT(run("reward", "c"), StatusIs(kPrecondition, HasSubstr("no stage of the job that scores is named c")));
}

}  // namespace
}  // namespace sluice::testing
