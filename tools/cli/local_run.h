// Controller, worker and engines of one job in this process and its children.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sluice/v1/controller.pb.h"
#include "sluice/v1/job.pb.h"
#include "sluice/v1/types.pb.h"

namespace sluice::cli {

struct LocalRunOptions {
  std::string metrics_address;  // of /metrics; empty: none
  std::string engine_binary;    // empty: the one beside this program
};

// InvalidArgument: the job asks for more than this one machine has. A cluster would let it wait for a worker that fits;
// here none will come.
absl::Status CheckFitsThisHost(const v1::JobSpec& spec);

// Before any thread starts: no thread takes SIGINT and SIGTERM, so that RunHere can.
void BlockSignals();

// Runs the job to its end. `on_update` is given the job's address and every event. The first SIGINT or SIGTERM cancels
// the job, the second ends this process. REQUIRES: BlockSignals was called.
absl::StatusOr<v1::Job> RunHere(
    const v1::JobSpec& spec, const LocalRunOptions& options,
    const std::function<void(const std::string& controller, const v1::WatchJobResponse& update)>& on_update);

}  // namespace sluice::cli
