// The role interface without processes: its primitives make up train_batch, and a checkpoint is a place to go back to.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "common/config/job_reader.h"
#include "common/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "engine/roles/language_model_role.h"
#include "engine/roles/stage_dispatch.h"
#include "tests/e2e/tiny_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

class RoleTest : public ::testing::Test {
 protected:
  // A role of one rank, initialised for the tiny job with its run in `run`.
  std::unique_ptr<engine::LanguageModelRole> Role(const std::string& run, std::vector<std::string> overrides = {}) {
    LoadOptions options;
    options.file = job_.Path("job.yaml");
    options.overrides = std::move(overrides);
    options.overrides.push_back("trainer.default_local_dir=" + job_.Path(run));
    options.working_folder = std::filesystem::current_path().string();
    const auto spec = LoadJobSpec(options);
    EXPECT_OK(spec);
    v1::InitializeOp op;
    *op.mutable_spec() = *spec;
    op.set_world_size(1);
    auto role = std::make_unique<engine::LanguageModelRole>(engine::RoleOptions());
    EXPECT_OK(role->Initialize(op));
    return role;
  }

  static v1::StepMetrics Train(engine::LanguageModelRole& role, int64_t step) {
    v1::TrainBatchOp op;
    op.set_step(step);
    const auto metrics = role.TrainBatch(op);
    EXPECT_OK(metrics);
    return metrics.value_or(v1::StepMetrics());
  }

  std::string Weights(engine::LanguageModelRole& role, const std::string& name) {
    v1::ExportWeightsOp op;
    op.set_path(job_.Path(name));
    EXPECT_OK(role.ExportWeights(op));
    const std::string weights = job_.Contents(name + "/model.safetensors");
    EXPECT_FALSE(weights.empty());
    return weights;
  }

  TinyJob job_;
};

TEST_F(RoleTest, PrimitivesMakeUpTrainBatch) {
  const auto whole = Role("whole");
  const auto parts = Role("parts");
  for (int64_t step = 1; step <= 3; ++step) {
    const v1::StepMetrics metrics = Train(*whole, step);
    ASSERT_OK(parts->OptimizerZeroGrad({}));
    v1::ForwardBackwardOp op;
    op.set_step(step);
    ASSERT_OK_AND_ASSIGN(const auto loss, parts->ForwardBackward(op));
    ASSERT_OK_AND_ASSIGN(const auto applied, parts->OptimizerStep({}));
    ASSERT_OK_AND_ASSIGN(const auto schedule, parts->LrSchedulerStep({}));
    EXPECT_EQ(loss.loss(), metrics.loss());
    EXPECT_EQ(loss.scored_tokens(), metrics.scored_tokens());
    EXPECT_EQ(applied.grad_norm(), metrics.grad_norm());
    EXPECT_NE(schedule.lr(), metrics.lr()) << "the next rate, not the one just applied";
  }
  EXPECT_EQ(Weights(*whole, "a"), Weights(*parts, "b"));
}

TEST_F(RoleTest, ForwardOnlyChangesNothing) {
  const auto role = Role("run");
  const std::string before = Weights(*role, "before");
  v1::ForwardBackwardOp op;
  op.set_step(1);
  op.set_forward_only(true);
  ASSERT_OK_AND_ASSIGN(const auto forward, role->ForwardBackward(op));
  ASSERT_OK(role->InferBatch({}));
  EXPECT_EQ(Weights(*role, "after"), before);
  EXPECT_NEAR(forward.loss() / Train(*role, 1).loss(), 1, 1e-6);
}

// On the CPU everything is in host memory already; a GPU's moves are in cuda_model_test.
TEST_F(RoleTest, MovesNothingOnTheCpu) {
  const auto role = Role("run");
  v1::ToOp op;
  op.set_model(true);
  op.set_optimizer(true);
  op.set_grad(true);
  for (const char* device : {"cpu", "device"}) {
    op.set_device(device);
    ASSERT_OK_AND_ASSIGN(const auto moved, role->To(op));
    EXPECT_EQ(moved.bytes(), 0);
  }
  EXPECT_GT(Train(*role, 1).loss(), 0);
  op.set_device("cuda");
  EXPECT_THAT(role->To(op), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("`cpu` or `device`")));
  engine::LanguageModelRole fresh({});
  op.set_device("cpu");
  EXPECT_THAT(fresh.To(op), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not initialised")));
}

TEST_F(RoleTest, GoesBackToACheckpoint) {
  const auto role = Role("run");
  Train(*role, 1);
  Train(*role, 2);
  v1::SaveCheckpointOp save;
  save.set_step(2);
  ASSERT_OK_AND_ASSIGN(const auto saved, role->SaveCheckpoint(save));
  EXPECT_EQ(saved.path(), job_.Path("run/global_step_2"));
  EXPECT_GT(saved.bytes(), 0);
  const double third = Train(*role, 3).loss();
  const std::string weights = Weights(*role, "first");
  v1::LoadCheckpointOp load;
  load.set_path(saved.path());
  ASSERT_OK(role->LoadCheckpoint(load));
  EXPECT_EQ(Train(*role, 3).loss(), third);
  EXPECT_EQ(Weights(*role, "second"), weights);
}

TEST_F(RoleTest, ACheckpointOfAnotherRunIsRefused) {
  {
    const auto role = Role("run");
    Train(*role, 1);
    v1::SaveCheckpointOp save;
    save.set_step(1);
    ASSERT_OK(role->SaveCheckpoint(save));
  }
  const auto resume = [&](const std::string& override) {
    LoadOptions options;
    options.file = job_.Path("job.yaml");
    options.overrides = {"trainer.default_local_dir=" + job_.Path("run"), override};
    options.working_folder = std::filesystem::current_path().string();
    v1::InitializeOp op;
    *op.mutable_spec() = LoadJobSpec(options).value();
    op.set_world_size(1);
    return engine::LanguageModelRole({}).Initialize(op).status();
  };
  EXPECT_THAT(resume("trainer.seed=8"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trainer.seed=7")));
  EXPECT_THAT(resume("data.train_batch_size=4"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("data.train_batch_size")));
  EXPECT_THAT(resume("data.train_max_samples=10"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("other training data")));
  EXPECT_OK(resume("trainer.total_epochs=3"));
}

TEST_F(RoleTest, OperationsOutOfOrderAreRefused) {
  engine::LanguageModelRole empty({});
  EXPECT_THAT(empty.TrainBatch({}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not initialised for training")));
  EXPECT_THAT(empty.Generate({}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not initialised with a model")));
  const auto role = Role("run");
  v1::TrainBatchOp skip;
  skip.set_step(3);
  EXPECT_THAT(role->TrainBatch(skip),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("step 3 is asked for, but 0 steps are done")));
  EXPECT_THAT(role->Initialize({}), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("initialised already")));
  const auto nothing = engine::DispatchStage(role.get(), v1::StageRequest(), 0);
  EXPECT_THAT(nothing, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("names no operation")));
  ASSERT_TRUE(FailureOf(nothing.status()).has_value());
  EXPECT_EQ(FailureOf(nothing.status())->reason(), v1::FAILURE_REASON_INVALID);
}

TEST_F(RoleTest, GeneratesGreedily) {
  const auto role = Role("run");
  v1::GenerateOp op;
  op.add_prompts("What is 3 and 9?");
  op.set_apply_chat_template(true);
  op.set_max_new_tokens(5);
  ASSERT_OK_AND_ASSIGN(const auto first, role->Generate(op));
  ASSERT_EQ(first.completions_size(), 1);
  EXPECT_LE(first.completions(0).token_ids_size(), 5);
  ASSERT_OK_AND_ASSIGN(const auto second, role->Generate(op));
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  op.set_max_new_tokens(0);
  EXPECT_THAT(role->Generate(op), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_new_tokens")));
}

}  // namespace
}  // namespace sluice::testing
