// ModelRole: the optimizer's operations and generation.

#include <c10/cuda/CUDACachingAllocator.h>
#include <sys/resource.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/grpc_status.h"
#include "common/logging.h"
#include "common/status_macros.h"
#include "engine/roles/generate_operation.h"
#include "engine/roles/model_role.h"

namespace sluice::engine {
namespace {

int64_t PeakHostBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;  // Linux counts in KiB
}

int64_t PeakDeviceBytes(kernels::Device device) {
  if (!device.is_cuda()) return 0;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index);
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

}  // namespace

absl::Status ModelRole::NotOfThisRecipe(const std::string& op) const {
  return absl::FailedPreconditionError(
      absl::StrCat(op, " is not an operation of recipe ", spec_.recipe().empty() ? "(none)" : spec_.recipe()));
}

absl::Status ModelRole::ApplyGradients(kernels::ConstTensorView loss) {
  RETURN_IF_ERROR(communicator_->AllReduceSum(parameters_->gradients()));
  return ApplySummedGradients(loss);
}

absl::Status ModelRole::ApplySummedGradients(kernels::ConstTensorView loss) {
  return optimizer_->Step(schedule_->LearningRate(schedule_steps_ + 1), schedule_->WeightDecay(schedule_steps_ + 1),
                          loss);
}

absl::StatusOr<OptimizerStepResult> ModelRole::ReadApplied() {
  ASSIGN_OR_RETURN(const OptimizerStepResult applied, optimizer_->Read());
  RETURN_IF_ERROR(communicator_->device_status());
  return applied;
}

absl::Status ModelRole::NoteSkippedStep(const std::vector<int64_t>& rows) {
  ++counters_.skipped_updates;
  ++counters_.skipped_in_a_row;
  LoggerFor("engine").Warning(
      absl::StrCat("step ", steps_done_ + 1,
                   " was skipped: loss or gradient is not finite; rows of this rank: ", absl::StrJoin(rows, ",")));
  if (counters_.skipped_in_a_row < spec_.trainer().max_nonfinite_steps()) return absl::OkStatus();
  v1::Failure failure;
  failure.set_reason(v1::FAILURE_REASON_NONFINITE);
  failure.set_rank(options_.rank);
  failure.set_message(absl::StrCat("loss or gradients were not finite for ", counters_.skipped_in_a_row,
                                   " steps in a row, the last one step ", steps_done_ + 1,
                                   "; lower optim.lr, lengthen the warm-up, or look at the rows named in the log"));
  return WithFailure(absl::FailedPreconditionError(failure.message()), failure);
}

void ModelRole::FillMemory(v1::StepMetrics* metrics) const {
  metrics->set_peak_host_bytes(PeakHostBytes());
  metrics->set_peak_device_bytes(PeakDeviceBytes(device_));
}

absl::StatusOr<v1::StepMetrics> ModelRole::TrainBatch(const v1::TrainBatchOp&) {
  return NotOfThisRecipe("train_batch");
}

absl::StatusOr<v1::ForwardBackwardResult> ModelRole::ForwardBackward(const v1::ForwardBackwardOp&) {
  return NotOfThisRecipe("forward_backward");
}

absl::StatusOr<v1::DataflowResult> ModelRole::RunDataflowStage(const v1::DataflowOp& op) {
  return NotOfThisRecipe(op.op());
}

absl::StatusOr<v1::OptimizerZeroGradResult> ModelRole::OptimizerZeroGrad(const v1::OptimizerZeroGradOp&) {
  RETURN_IF_ERROR(RequireTrainable());
  ForgetAhead();
  RETURN_IF_ERROR(parameters_->ZeroGradients());
  return v1::OptimizerZeroGradResult();
}

absl::StatusOr<v1::OptimizerStepResult> ModelRole::OptimizerStep(const v1::OptimizerStepOp&) {
  RETURN_IF_ERROR(RequireTrainable());
  RETURN_IF_ERROR(ApplyGradients(/*loss=*/{}));
  ASSIGN_OR_RETURN(const OptimizerStepResult applied, ReadApplied());
  counters_.optimizer_updates += !applied.skipped;
  counters_.skipped_updates += applied.skipped;
  v1::OptimizerStepResult result;
  result.set_grad_norm(applied.grad_norm);
  result.set_skipped_nonfinite(applied.skipped);
  return result;
}

absl::StatusOr<v1::LrSchedulerStepResult> ModelRole::LrSchedulerStep(const v1::LrSchedulerStepOp&) {
  RETURN_IF_ERROR(RequireTrainable());
  ++schedule_steps_;
  v1::LrSchedulerStepResult result;
  result.set_lr(schedule_->LearningRate(schedule_steps_ + 1));
  return result;
}

absl::StatusOr<v1::GenerateResult> ModelRole::Generate(const v1::GenerateOp& op) {
  RETURN_IF_ERROR(RequireModel());
  return RunGenerate(op, *encoder_, *parameters_);
}

}  // namespace sluice::engine
