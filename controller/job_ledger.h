// The one way to change jobs: the store first, then the metrics and the listeners. Steps come too fast to be made
// durable one by one, so they are noted here and written together every flush interval; a change of state writes what
// was noted before it first, so that a job's events stand in order. Threads: all methods may be called from any thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "controller/store/store.h"

namespace sluice::controller {

class JobLedger {
 public:
  // What is noted is durable after this long at most.
  static constexpr absl::Duration kFlushInterval = absl::Milliseconds(200);

  // REQUIRES: the arguments outlive the ledger.
  JobLedger(Store* store, const Clock* clock, Metrics* metrics);
  // Writes what was noted.
  ~JobLedger();

  // Called with the id of each job that changed, after the change is durable, from the thread that made it. Must not
  // block or call the ledger. Call before any change.
  void SetListener(std::function<void(const std::string& job_id)> listener);

  // As the store's, see there.
  absl::StatusOr<AddedJob> AddJob(const RequestId& request, const v1::JobSpec& spec);
  absl::StatusOr<v1::Job> Move(const std::string& job_id, v1::JobState from, v1::JobState to, Change change);
  absl::StatusOr<AttemptRecord> BeginAttempt(const std::string& job_id, std::vector<Placement> placements,
                                             Change change);

  // Something happened inside a state. Returns at once; durable within kFlushInterval or before the job's next change
  // of state. `progress` replaces the job's, where given. The message becomes the job's status message,
  // unless it is a warning. Lost for a job
  // that is final.
  void Note(const std::string& job_id, Happening happening, const v1::Progress* progress);

  // Writes what was noted of a job.
  void Flush(const std::string& job_id);

 private:
  struct Noted {
    std::vector<Happening> happenings;
    std::optional<v1::Progress> progress;
  };

  void FlushLoop();
  void CountJobs();
  void Announce(const std::string& job_id);

  Store* const store_;
  const Clock* const clock_;
  Metrics* const metrics_;
  std::function<void(const std::string&)> listener_;

  // Held while noted happenings are written, so that two writers keep a job's order. Acquired before mutex_.
  absl::Mutex write_mutex_;
  absl::Mutex mutex_ ABSL_ACQUIRED_AFTER(write_mutex_);
  absl::CondVar changed_;
  std::map<std::string, Noted> noted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread flusher_;
};

}  // namespace sluice::controller
