#include "engine/roles/stage_dispatch.h"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/roles/failure.h"

namespace sluice::engine {
namespace {

absl::StatusOr<v1::StageResponse> Dispatch(Role& role, const v1::StageRequest& request) {
  v1::StageResponse response;
  switch (request.op_case()) {
    case v1::StageRequest::kInitialize: {
      ASSIGN_OR_RETURN(*response.mutable_initialize(), role.Initialize(request.initialize()));
      break;
    }
    case v1::StageRequest::kTrainBatch: {
      ASSIGN_OR_RETURN(*response.mutable_train_batch(), role.TrainBatch(request.train_batch()));
      break;
    }
    case v1::StageRequest::kInferBatch: {
      ASSIGN_OR_RETURN(*response.mutable_infer_batch(), role.InferBatch(request.infer_batch()));
      break;
    }
    case v1::StageRequest::kForwardBackward: {
      ASSIGN_OR_RETURN(*response.mutable_forward_backward(), role.ForwardBackward(request.forward_backward()));
      break;
    }
    case v1::StageRequest::kOptimizerZeroGrad: {
      ASSIGN_OR_RETURN(*response.mutable_optimizer_zero_grad(), role.OptimizerZeroGrad(request.optimizer_zero_grad()));
      break;
    }
    case v1::StageRequest::kOptimizerStep: {
      ASSIGN_OR_RETURN(*response.mutable_optimizer_step(), role.OptimizerStep(request.optimizer_step()));
      break;
    }
    case v1::StageRequest::kLrSchedulerStep: {
      ASSIGN_OR_RETURN(*response.mutable_lr_scheduler_step(), role.LrSchedulerStep(request.lr_scheduler_step()));
      break;
    }
    case v1::StageRequest::kGenerate: {
      ASSIGN_OR_RETURN(*response.mutable_generate(), role.Generate(request.generate()));
      break;
    }
    case v1::StageRequest::kSaveCheckpoint: {
      ASSIGN_OR_RETURN(*response.mutable_save_checkpoint(), role.SaveCheckpoint(request.save_checkpoint()));
      break;
    }
    case v1::StageRequest::kLoadCheckpoint: {
      ASSIGN_OR_RETURN(*response.mutable_load_checkpoint(), role.LoadCheckpoint(request.load_checkpoint()));
      break;
    }
    case v1::StageRequest::kExportWeights: {
      ASSIGN_OR_RETURN(*response.mutable_export_weights(), role.ExportWeights(request.export_weights()));
      break;
    }
    case v1::StageRequest::kTo: {
      ASSIGN_OR_RETURN(*response.mutable_to(), role.To(request.to()));
      break;
    }
    case v1::StageRequest::kDataflow: {
      ASSIGN_OR_RETURN(*response.mutable_dataflow(), role.RunDataflowStage(request.dataflow()));
      break;
    }
    case v1::StageRequest::OP_NOT_SET:
      return absl::InvalidArgumentError("the stage request names no operation");
  }
  return response;
}

absl::StatusOr<v1::StageResponse> DispatchWithoutExceptions(Role& role, const v1::StageRequest& request) {
  try {
    return Dispatch(role, request);
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "device memory ran out; lower data.max_token_len_per_gpu or set engine.activation_checkpointing to full: ",
        error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return absl::InternalError(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "host memory ran out; lower data.max_token_len_per_gpu or use model_dtype bf16");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace

absl::StatusOr<v1::StageResponse> DispatchStage(Role* role, const v1::StageRequest& request, int rank) {
  absl::StatusOr<v1::StageResponse> response = role == nullptr
                                                   ? absl::FailedPreconditionError("the engine is not initialised")
                                                   : DispatchWithoutExceptions(*role, request);
  RETURN_IF_ERROR(WithFailureOf(response.status(), request.op_case(), rank));
  return response;
}

}  // namespace sluice::engine
