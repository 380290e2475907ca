#include "engine/roles/failure.h"

#include "common/grpc_status.h"

namespace sluice::engine {
namespace {

bool WritesFiles(v1::StageRequest::OpCase op) {
  return op == v1::StageRequest::kSaveCheckpoint || op == v1::StageRequest::kExportWeights;
}

v1::FailureReason ReasonOf(absl::StatusCode code, v1::StageRequest::OpCase op) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kOutOfRange:
      return v1::FAILURE_REASON_INVALID;
    case absl::StatusCode::kDataLoss:
      return WritesFiles(op) ? v1::FAILURE_REASON_STORAGE : v1::FAILURE_REASON_INVALID;
    case absl::StatusCode::kAborted:
      return v1::FAILURE_REASON_COLLECTIVE;
    case absl::StatusCode::kResourceExhausted:
      return WritesFiles(op) ? v1::FAILURE_REASON_STORAGE : v1::FAILURE_REASON_OUT_OF_MEMORY;
    default:
      return WritesFiles(op) ? v1::FAILURE_REASON_STORAGE : v1::FAILURE_REASON_ENGINE_ERROR;
  }
}

}  // namespace

absl::Status WithFailureOf(const absl::Status& status, v1::StageRequest::OpCase op, int rank) {
  if (status.ok() || FailureOf(status).has_value()) return status;
  v1::Failure failure;
  failure.set_reason(ReasonOf(status.code(), op));
  failure.set_message(std::string(status.message()));
  failure.set_rank(rank);
  return WithFailure(status, failure);
}

}  // namespace sluice::engine
