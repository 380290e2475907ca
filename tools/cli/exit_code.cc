#include "tools/cli/exit_code.h"

#include <cstdio>
#include <string>

namespace sluice::cli {

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kOutOfRange:
      return kUsage;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kUnavailable;
    default:
      return kJobFailed;
  }
}

int ExitCodeOf(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return kOk;
  if (job.state() == v1::JOB_STATE_FAILED && job.failure().reason() == v1::FAILURE_REASON_INVALID) return kUsage;
  return kJobFailed;
}

int ReportError(const absl::Status& status) {
  std::fprintf(stderr, "sluice: %s\n", std::string(status.message()).c_str());
  return ExitCodeOf(status);
}

}  // namespace sluice::cli
