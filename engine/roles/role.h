// What an engine can be asked to do: the operations of engine.proto, one method each. A role is one model with its
// data, optimizer and communicator on one rank.
//
// One thread at a time. Status codes are those of failure.h. An operation that failed leaves a role that may only be
// destroyed, except that errors of Generate, SaveCheckpoint and ExportWeights leave it as it was.
#pragma once

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "sluice/v1/engine.pb.h"

namespace sluice::engine {

class Role {
 public:
  virtual ~Role() = default;

  virtual absl::StatusOr<v1::InitializeResult> Initialize(const v1::InitializeOp& op) = 0;
  virtual absl::StatusOr<v1::StepMetrics> TrainBatch(const v1::TrainBatchOp& op) = 0;
  virtual absl::StatusOr<v1::ValidationMetrics> InferBatch(const v1::InferBatchOp& op) = 0;
  virtual absl::StatusOr<v1::DataflowResult> RunDataflowStage(const v1::DataflowOp& op) = 0;
  virtual absl::StatusOr<v1::ForwardBackwardResult> ForwardBackward(const v1::ForwardBackwardOp& op) = 0;
  virtual absl::StatusOr<v1::OptimizerZeroGradResult> OptimizerZeroGrad(const v1::OptimizerZeroGradOp& op) = 0;
  virtual absl::StatusOr<v1::OptimizerStepResult> OptimizerStep(const v1::OptimizerStepOp& op) = 0;
  virtual absl::StatusOr<v1::LrSchedulerStepResult> LrSchedulerStep(const v1::LrSchedulerStepOp& op) = 0;
  virtual absl::StatusOr<v1::GenerateResult> Generate(const v1::GenerateOp& op) = 0;
  virtual absl::StatusOr<v1::CheckpointResult> SaveCheckpoint(const v1::SaveCheckpointOp& op) = 0;
  virtual absl::StatusOr<v1::CheckpointResult> LoadCheckpoint(const v1::LoadCheckpointOp& op) = 0;
  virtual absl::StatusOr<v1::ExportWeightsResult> ExportWeights(const v1::ExportWeightsOp& op) = 0;
  virtual absl::StatusOr<v1::ToResult> To(const v1::ToOp& op) = 0;

  // The collective that the role is in or finished last. From any thread.
  virtual CollectiveState collective_state() const = 0;
};

}  // namespace sluice::engine
