// Carries one attempt of a job from ADMITTED to its end, on a thread of its own: starts the engines, runs the stages
// that the plan asks for, records what they give, stops the engines, and moves the job to where it belongs. Also ends
// attempts that an earlier controller left behind (Mode::kEndOnly).
//
// Invariants (tests cite them by number):
//   RUN-1  When the job has left for QUEUED or a final state, no engine of this attempt runs: each worker said so or is
//   gone. RUN-2  Once the job is CANCELLING nothing but CANCELLED follows. RUN-3  Every stage call of an attempt
//   carries its epoch; stopping takes a newer one, so that a late call is refused. RUN-4  An attempt whose failure
//   another attempt may mend goes back to QUEUED at most trainer.max_restarts times.
// Threads: the public methods may be called from any thread; none blocks.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "controller/dataflow/attempt_options.h"
#include "controller/dataflow/gang.h"
#include "controller/dataflow/job_plan.h"
#include "controller/dataflow/results.h"
#include "controller/dataflow/stage_flights.h"
#include "controller/job_ledger.h"
#include "controller/store/store.h"

namespace sluice::controller {

class AttemptRunner {
 public:
  enum class Mode {
    kRun,      // the job is ADMITTED
    kEndOnly,  // the attempt belongs to an earlier controller: stop it, then queue the job again, or finish its cancel
  };

  // What runners share. REQUIRES: everything outlives the runner.
  struct Environment {
    JobLedger* ledger;
    Store* store;
    const WorkerRegistry* registry;
    WorkerClientFactory clients;
    const Clock* clock;
    Metrics* metrics;
    AttemptOptions options;
  };

  // `job` is the job when the attempt began, `losses_before` the number of attempts before it that were lost in a row
  // (see RestartDelay). `on_done` is called once from the runner's thread, as its last act.
  AttemptRunner(Mode mode, v1::Job job, AttemptRecord record, int32_t losses_before, Environment environment,
                std::function<void()> on_done);
  // Waits for the end. REQUIRES: it is near: done() or Abandon was called.
  ~AttemptRunner();

  void Start();

  // The job is CANCELLING in the store: end soon. A save that runs may end first; with `hurry` it may not.
  void Cancel(bool hurry);
  // Something outside saw the attempt fail, such as a lost worker.
  void Lose(const v1::Failure& failure);
  // The controller stops: end the attempt and queue the job again, for the next controller.
  void ShutDown();
  // Give up waiting for anything. The job stays where it is, for the next controller to end.
  void Abandon();

  bool done() const { return done_.load(); }
  // When Cancel was first called.
  std::optional<absl::Time> cancel_time() const;

  const AttemptRecord& record() const { return record_; }

  // What the end of this attempt means for the next: how many were lost in a row, and when it may begin. REQUIRES:
  // done().
  int32_t losses() const { return losses_; }
  absl::Time not_before() const { return not_before_; }

 private:
  void Run();
  // Waits a little where the job is neither queued nor final, unless the runner is given up.
  void PauseIfUnsettled();
  // From ADMITTED to the last stage. OK: all is done.
  absl::Status Train();
  // The stages of the plan to its end, those that may at the same time. The first failure gives the others
  // options.settle to end; what comes back is the cause of all.
  absl::Status RunCourse(const JobPlan& plan);
  absl::Status BeginStage(const JobPlan& plan, const Stage& stage, JobProgress* progress, StageFlights* flights);
  // Cancelled: the job is to end here.
  absl::Status EndStage(const JobPlan& plan, const StageFlights::Landed& landed, JobProgress* progress);
  // What only this attempt knows.
  v1::StageRequest Complete(const v1::StageRequest& of_plan);
  // From any thread. `ranks`: those that are asked; empty: all.
  absl::StatusOr<v1::StageResponse> RunStage(const v1::StageRequest& request, const std::vector<int32_t>& ranks,
                                             std::stop_token stop) const;
  void RecordMetrics(const StageFlights::Landed& landed);
  void Record(const Stage& stage, const v1::StageResponse& response, const JobProgress& progress);
  // Each once in an attempt.
  void RecordWarnings(const v1::StageResponse& response);

  // Moves the job unless it is there. Cancelled: the job was moved by a cancel.
  absl::Status Enter(v1::JobState to, const std::string& message);
  absl::Status Move(v1::JobState to, Change change);

  // The ways an attempt ends. Each stops the engines first (RUN-1).
  void EndSucceeded();
  void EndCancelled();
  void EndFailed(const v1::Failure& failure);
  // `delay`: the next attempt waits this long.
  void EndRequeued(const std::string& why, absl::Duration delay = absl::ZeroDuration());
  // False: it was given up, and the job stays where it is.
  bool StopEngines(absl::Duration grace);

  bool cancelled() const;
  absl::Duration TimeoutOf(const v1::StageRequest& request) const;

  const Mode mode_;
  const AttemptRecord record_;
  const Environment environment_;
  const std::function<void()> on_done_;

  // Used by the runner's thread only.
  const v1::JobSpec spec_;
  v1::JobState state_;
  v1::Progress progress_;
  EtaEstimator eta_;
  Gang gang_;
  std::string rendezvous_address_;
  std::string output_path_;
  std::set<std::string> warnings_;
  std::vector<v1::StageSpan> spans_;  // of stages whose event is still to come
  int64_t sequence_ = 0;
  int32_t losses_;
  absl::Time not_before_ = absl::InfinitePast();
  bool engines_may_run_ = false;
  bool engines_stopped_ = false;

  std::stop_source calls_;    // ends the calls of starting and of stages
  std::stop_source abandon_;  // ends the wait for engines to stop

  mutable absl::Mutex mutex_;
  bool saving_ ABSL_GUARDED_BY(mutex_) = false;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Time> cancel_time_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Failure> lost_ ABSL_GUARDED_BY(mutex_);

  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace sluice::controller
