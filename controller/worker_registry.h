// Which workers there are and when they were last heard from. READY while heartbeats come in time, then SUSPECT (no new
// work), then LOST (its attempts are given up). A worker counts as lost only after its lease: by then its engines have
// stopped themselves, so that a new attempt never meets an old one. Threads: all methods may be called from any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "sluice/v1/controller.pb.h"

namespace sluice::controller {

struct RegistryOptions {
  absl::Duration heartbeat_interval = absl::Seconds(2);
  absl::Duration suspect_after = absl::Seconds(6);  // three missing heartbeats
  absl::Duration lease = absl::Seconds(20);         // engines without an answered heartbeat stop themselves
  absl::Duration lost_after = absl::Seconds(25);    // the lease, and time for the engines to be gone
  absl::Duration forget_after = absl::Hours(1);     // a LOST worker is no longer listed
};

// A daemon that is gone: silent for too long, or replaced by a new start of itself.
struct WorkerLoss {
  std::string worker_id;
  std::string incarnation;
  std::string reason;
};

class WorkerRegistry {
 public:
  // REQUIRES: clock and metrics outlive the registry.
  WorkerRegistry(const RegistryOptions& options, const Clock* clock, Metrics* metrics);

  // InvalidArgument: a field is missing. FailedPrecondition: the worker was built from another version.
  absl::StatusOr<v1::RegisterWorkerResponse> Register(const v1::RegisterWorkerRequest& request);

  // NotFound: not registered, or given up; register again.
  absl::Status Heartbeat(const std::string& worker_id, const std::string& incarnation);

  // By worker_id, with states as of now; ranks_used and job_ids are for the caller to fill in.
  std::vector<v1::Worker> List() const;

  // The losses since the last call.
  std::vector<WorkerLoss> TakeLosses();

  // Whether nothing of this start of the daemon can still run: it was replaced, or it was silent past the lease. A
  // worker that this controller never heard from counts as silent since the controller's start.
  bool IsGone(const std::string& worker_id, const std::string& incarnation) const;

 private:
  struct Entry {
    v1::RegisterWorkerRequest registration;
    absl::Time last_heartbeat;
    bool loss_reported = false;
  };

  v1::WorkerState StateOf(const Entry& entry, absl::Time now) const;
  void UpdateMetrics(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RegistryOptions options_;
  const Clock* const clock_;
  Metrics* const metrics_;
  const absl::Time start_time_;

  mutable absl::Mutex mutex_;
  std::map<std::string, Entry> workers_ ABSL_GUARDED_BY(mutex_);
  std::vector<WorkerLoss> losses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::controller
