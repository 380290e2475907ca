// The documented exit codes of `sluice`, and where they come from.
#pragma once

#include "absl/status/status.h"
#include "sluice/v1/types.pb.h"

namespace sluice::cli {

enum ExitCode : int {
  kOk = 0,
  kJobFailed = 1,    // the job failed or was cancelled; also any error that has no code of its own
  kUsage = 2,        // wrong arguments, configuration, model or data: nothing was run
  kNotFound = 3,     // no such job
  kUnavailable = 4,  // no answer from the controller
};

// Of a call's status.
int ExitCodeOf(const absl::Status& status);

// Of a job that has ended.
int ExitCodeOf(const v1::Job& job);

// Prints "sluice: message" on standard error and returns the status's exit code.
int ReportError(const absl::Status& status);

}  // namespace sluice::cli
