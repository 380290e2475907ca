// Accepts jobs, starts them in turn when workers have room, and ends them: the queue and the runners of the attempts.
// The decisions are the scheduler's and the plan's; this is the shell around them. Threads: all methods may be called
// from any thread. None waits for a worker, except Shutdown.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "controller/dataflow/attempt_runner.h"
#include "controller/job_ledger.h"
#include "controller/scheduler/snapshot.h"
#include "controller/store/store.h"
#include "controller/worker_registry.h"

namespace sluice::controller {

class JobManager {
 public:
  // REQUIRES: everything in `environment` and `registry` outlives the manager.
  JobManager(AttemptRunner::Environment environment, WorkerRegistry* registry);
  // As Shutdown with no time to wait, unless it was called.
  ~JobManager();

  // Takes up what the store holds: queued jobs are queued again, attempts of an earlier controller are ended first.
  // Then begins to schedule. Call once.
  absl::Status Start();

  // See ControllerService. Unavailable: shutting down.
  absl::StatusOr<v1::Job> Submit(const RequestId& request, const v1::JobSpec& spec);
  // OK on a job that is cancelling or cancelled; FailedPrecondition on one that succeeded or failed. NotFound: no such
  // job.
  absl::StatusOr<v1::Job> Cancel(const std::string& job_id, const std::string& reason);

  // Takes note of what a worker says of its attempts; returns those that must not run. REQUIRES: the registry accepted
  // it.
  std::vector<v1::AttemptKey> OnHeartbeat(const v1::HeartbeatRequest& request);

  // Workers may have come or gone: schedule soon.
  void WorkersChanged();

  // Fills in ranks_used and job_ids.
  void DescribeLoad(std::vector<v1::Worker>* workers) const;

  // Refuses new jobs, ends the running attempts and queues their jobs again for the next controller. What is not ended
  // by `deadline` is left as it is in the store; the next controller ends it.
  void Shutdown(absl::Time deadline);

 private:
  struct Queued {
    QueuedJob needs;
    std::string last_reason;
  };

  void Loop();
  void HandleLosses();
  void Reap();
  void HurryCancels();
  void SchedulePass();
  void StartJob(const std::string& job_id, std::vector<Placement> placements, const std::string& reason,
                absl::Time queued_at);
  // The job's next attempt begins at `not_before` or later.
  void Enqueue(const v1::Job& job, absl::Time not_before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddRunner(AttemptRunner::Mode mode, const v1::Job& job, const AttemptRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AttemptRunner::Environment environment_;
  WorkerRegistry* const registry_;

  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  std::map<int64_t, Queued> queue_ ABSL_GUARDED_BY(mutex_);  // by job number: the order of submission
  std::map<std::string, std::unique_ptr<AttemptRunner>> running_ ABSL_GUARDED_BY(mutex_);
  // Attempts lost in a row, of jobs that lost one. Not stored: a controller's restart is pause enough.
  std::map<std::string, int32_t> losses_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread loop_;
};

}  // namespace sluice::controller
