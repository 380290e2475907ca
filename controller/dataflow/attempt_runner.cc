#include "controller/dataflow/attempt_runner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/logging.h"
#include "common/status_macros.h"
#include "controller/dataflow/failure.h"
#include "controller/job_states.h"

namespace sluice::controller {

AttemptRunner::AttemptRunner(Mode mode, v1::Job job, AttemptRecord record, int32_t losses_before,
                             Environment environment, std::function<void()> on_done)
    : mode_(mode),
      record_(std::move(record)),
      environment_(std::move(environment)),
      on_done_(std::move(on_done)),
      spec_(SpecOfAttempt(job.spec(), record_.attempt, job.progress())),
      state_(job.state()),
      progress_(job.progress()),
      gang_(record_, environment_.options, environment_.clients, environment_.registry, environment_.clock),
      losses_(losses_before),
      engines_may_run_(mode == Mode::kEndOnly) {}

AttemptRunner::~AttemptRunner() {
  if (thread_.joinable()) thread_.join();
}

void AttemptRunner::Start() {
  thread_ = std::thread([this] {
    Run();
    PauseIfUnsettled();
    done_.store(true);
    on_done_();
  });
}

void AttemptRunner::Cancel(bool hurry) {
  bool interrupt = false;
  {
    absl::MutexLock lock(&mutex_);
    if (!cancel_time_.has_value()) cancel_time_ = environment_.clock->Now();
    interrupt = !saving_ || hurry;
  }
  // Outside the lock: it runs callbacks.
  if (interrupt) calls_.request_stop();
}

void AttemptRunner::Lose(const v1::Failure& failure) {
  {
    absl::MutexLock lock(&mutex_);
    if (!lost_.has_value()) lost_ = failure;
  }
  calls_.request_stop();
}

void AttemptRunner::ShutDown() {
  {
    absl::MutexLock lock(&mutex_);
    shut_down_ = true;
  }
  calls_.request_stop();
}

void AttemptRunner::Abandon() {
  calls_.request_stop();
  abandon_.request_stop();
}

std::optional<absl::Time> AttemptRunner::cancel_time() const {
  absl::MutexLock lock(&mutex_);
  return cancel_time_;
}

bool AttemptRunner::cancelled() const { return cancel_time().has_value() || state_ == v1::JOB_STATE_CANCELLING; }

void AttemptRunner::Run() {
  if (mode_ == Mode::kEndOnly) {
    if (state_ == v1::JOB_STATE_CANCELLING) return EndCancelled();
    return EndRequeued("the controller was restarted");
  }
  const absl::Status status = Train();
  bool shut_down = false;
  std::optional<v1::Failure> lost;
  {
    absl::MutexLock lock(&mutex_);
    shut_down = shut_down_;
    lost = lost_;
  }
  if (cancelled()) return EndCancelled();
  if (status.ok()) return EndSucceeded();
  std::vector<v1::Failure> failures;
  if (!absl::IsCancelled(status)) failures.push_back(FailureFromStatus(status, record_.job_id));
  if (lost.has_value()) failures.push_back(*lost);
  if (!failures.empty()) return EndFailed(RootCause(failures));
  if (shut_down) return EndRequeued("the controller is shutting down");
  // Given up by Abandon: the job stays as it is.
}

void AttemptRunner::PauseIfUnsettled() {
  const auto job = environment_.store->GetJob(record_.job_id);
  if (job.ok() && (IsTerminal(job->state()) || job->state() == v1::JOB_STATE_QUEUED)) return;
  // The store refused the last change. The manager will try again with another runner; not at once.
  absl::Mutex mutex;
  absl::CondVar changed;
  std::stop_callback wake(abandon_.get_token(), [&] {
    absl::MutexLock lock(&mutex);
    changed.SignalAll();
  });
  const absl::Time end = environment_.clock->Now() + environment_.options.stop_retry;
  absl::MutexLock lock(&mutex);
  while (!abandon_.stop_requested() && environment_.clock->Now() < end)
    environment_.clock->WaitUntil(&mutex, &changed, end);
}

absl::Status AttemptRunner::Enter(v1::JobState to, const std::string& message) {
  if (state_ == to) return absl::OkStatus();
  Change change;
  change.message = message;
  return Move(to, std::move(change));
}

absl::Status AttemptRunner::Move(v1::JobState to, Change change) {
  const auto moved = environment_.ledger->Move(record_.job_id, state_, to, std::move(change));
  if (moved.ok()) {
    state_ = to;
    return absl::OkStatus();
  }
  if (!absl::IsFailedPrecondition(moved.status())) {
    v1::Failure failure;
    failure.set_reason(v1::FAILURE_REASON_CONTROLLER);
    failure.set_rank(-1);
    failure.set_message(std::string(moved.status().message()));
    return WithFailure(moved.status(), failure);
  }
  // Only a cancel moves a job beside its runner.
  const auto job = environment_.store->GetJob(record_.job_id);
  if (job.ok()) state_ = job->state();
  return absl::CancelledError(moved.status().message());
}

absl::Status AttemptRunner::Train() {
  RETURN_IF_ERROR(
      Enter(v1::JOB_STATE_STARTING,
            absl::StrCat("starts ", gang_.world_size(), gang_.world_size() == 1 ? " engine on " : " engines on ",
                         gang_.workers(), gang_.workers() == 1 ? " worker" : " workers")));
  const auto plan = MakeJobPlan(spec_);
  if (!plan.ok()) return plan.status();
  engines_may_run_ = true;
  ASSIGN_OR_RETURN(rendezvous_address_, gang_.Start(spec_, calls_.get_token()));
  RETURN_IF_ERROR(RunCourse(*plan));
  return Enter(v1::JOB_STATE_RUNNING, "stops its engines");
}

bool AttemptRunner::StopEngines(absl::Duration grace) {
  if (!engines_may_run_ || engines_stopped_) return true;
  const auto epoch = environment_.store->NextEpoch();
  if (!epoch.ok()) LoggerFor("jobs").Error(absl::StrCat(record_.job_id, ": ", std::string(epoch.status().message())));
  // A store that gives no number must not keep engines running: their own epoch stops them too.
  const absl::Status stopped =
      gang_.Stop(epoch.ok() ? *epoch : record_.epoch, grace, abandon_.get_token(), [this](const std::string& reason) {
        Happening happening;
        happening.message = reason;
        environment_.ledger->Note(record_.job_id, std::move(happening), nullptr);
      });
  engines_stopped_ = stopped.ok();
  return engines_stopped_;
}

void AttemptRunner::EndSucceeded() {
  if (!StopEngines(environment_.options.success_grace)) return;
  Change change;
  change.message = output_path_.empty() ? "succeeded" : absl::StrCat("succeeded; the model is in ", output_path_);
  if (!output_path_.empty()) change.output_path = output_path_;
  if (absl::IsCancelled(Move(v1::JOB_STATE_SUCCEEDED, std::move(change)))) EndCancelled();
}

void AttemptRunner::EndCancelled() {
  if (!StopEngines(environment_.options.cancel_grace)) return;
  // Cancel is called after the job is CANCELLING in the store, which this thread may not have seen yet.
  state_ = v1::JOB_STATE_CANCELLING;
  const absl::Status moved = Enter(v1::JOB_STATE_CANCELLED, "cancelled");
  if (!moved.ok()) LoggerFor("jobs").Error(absl::StrCat(record_.job_id, ": ", std::string(moved.message())));
}

void AttemptRunner::EndFailed(const v1::Failure& failure) {
  const auto restarts = environment_.store->RestartsUsed(record_.job_id);
  const int32_t allowed = spec_.trainer().max_restarts();
  Change change;
  change.failure = failure;
  change.message = failure.message();
  absl::Status moved;
  if (IsRetryable(failure.reason()) && restarts.ok() && *restarts < allowed) {
    change.counts_as_restart = true;
    change.message = absl::StrCat("attempt ", record_.attempt, " was lost: ", failure.message());
    moved = Move(v1::JOB_STATE_RECOVERING, std::move(change));
    if (moved.ok()) {
      return EndRequeued("", RestartDelay(++losses_, record_.job_id, record_.attempt, environment_.options.backoff));
    }
  } else {
    if (!StopEngines(environment_.options.failure_grace)) return;
    if (record_.attempt > 1) absl::StrAppend(&change.message, " (attempt ", record_.attempt, ", no more are allowed)");
    moved = Move(v1::JOB_STATE_FAILED, std::move(change));
  }
  if (absl::IsCancelled(moved)) return EndCancelled();
  if (!moved.ok()) LoggerFor("jobs").Error(absl::StrCat(record_.job_id, ": ", std::string(moved.message())));
}

void AttemptRunner::EndRequeued(const std::string& why, absl::Duration delay) {
  absl::Status moved = Enter(v1::JOB_STATE_RECOVERING, why);
  if (moved.ok()) {
    if (!StopEngines(environment_.options.failure_grace)) return;
    std::string message = progress_.checkpoint_step() >= 0
                              ? absl::StrCat("queued to resume from step ", progress_.checkpoint_step())
                              : std::string("queued to start again (there is no checkpoint yet)");
    if (delay > absl::ZeroDuration()) {
      absl::StrAppend(&message, " after a pause of ", absl::FormatDuration(absl::Trunc(delay, absl::Milliseconds(100))),
                      losses_ == 1 ? "" : absl::StrCat(" (", losses_, " attempts in a row were lost)"));
    }
    not_before_ = environment_.clock->Now() + delay;
    moved = Enter(v1::JOB_STATE_QUEUED, message);
  }
  if (absl::IsCancelled(moved)) return EndCancelled();
  if (!moved.ok()) LoggerFor("jobs").Error(absl::StrCat(record_.job_id, ": ", std::string(moved.message())));
}

}  // namespace sluice::controller
