#include "controller/dataflow/failure.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"

namespace sluice::controller {
namespace {

v1::FailureReason ReasonOfCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return v1::FAILURE_REASON_INVALID;
    case absl::StatusCode::kResourceExhausted:
      // A full disk and full memory share a code; an engine that knows better sends evidence.
      return absl::StrContains(status.message(), "o space left") ? v1::FAILURE_REASON_STORAGE
                                                                 : v1::FAILURE_REASON_OUT_OF_MEMORY;
    case absl::StatusCode::kDataLoss:
      return v1::FAILURE_REASON_STORAGE;
    case absl::StatusCode::kAborted:
      return v1::FAILURE_REASON_COLLECTIVE;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return v1::FAILURE_REASON_WORKER_LOST;
    default:
      return v1::FAILURE_REASON_ENGINE_ERROR;
  }
}

// Lower comes first as a cause.
int CauseOrder(v1::FailureReason reason) {
  switch (reason) {
    case v1::FAILURE_REASON_INVALID:
    case v1::FAILURE_REASON_OUT_OF_MEMORY:
    case v1::FAILURE_REASON_NONFINITE:
    case v1::FAILURE_REASON_STORAGE:
      return 0;
    case v1::FAILURE_REASON_ENGINE_CRASHED:
      return 1;
    case v1::FAILURE_REASON_ENGINE_ERROR:
      return 2;
    case v1::FAILURE_REASON_WORKER_LOST:
      return 3;
    case v1::FAILURE_REASON_COLLECTIVE:
      return 4;
    default:
      return 5;
  }
}

}  // namespace

v1::Failure FailureFromStatus(const absl::Status& status, const std::string& where) {
  if (std::optional<v1::Failure> failure = FailureOf(status); failure.has_value()) {
    if (failure->reason() == v1::FAILURE_REASON_UNSPECIFIED) failure->set_reason(ReasonOfCode(status));
    if (failure->message().empty()) failure->set_message(std::string(status.message()));
    return *std::move(failure);
  }
  v1::Failure failure;
  failure.set_reason(ReasonOfCode(status));
  failure.set_rank(-1);
  // The user's errors are shown as the engine words them: they name the key or the file.
  failure.set_message(failure.reason() == v1::FAILURE_REASON_INVALID
                          ? std::string(status.message())
                          : absl::StrCat(where, ": ", std::string(status.message())));
  return failure;
}

bool IsRetryable(v1::FailureReason reason) {
  switch (reason) {
    case v1::FAILURE_REASON_ENGINE_ERROR:
    case v1::FAILURE_REASON_ENGINE_CRASHED:
    case v1::FAILURE_REASON_WORKER_LOST:
    case v1::FAILURE_REASON_COLLECTIVE:
    case v1::FAILURE_REASON_CONTROLLER:
      return true;
    default:
      return false;
  }
}

v1::Failure RootCause(const std::vector<v1::Failure>& failures) {
  return *std::min_element(failures.begin(), failures.end(), [](const v1::Failure& a, const v1::Failure& b) {
    return CauseOrder(a.reason()) < CauseOrder(b.reason());
  });
}

}  // namespace sluice::controller
