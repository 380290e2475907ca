#include "controller/dataflow/attempt_runner.h"

#include <deque>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

absl::Status AttemptRunner::RunCourse(const JobPlan& plan) {
  // What came back, in its order, from the threads of the stages that run.
  struct Landed {
    Stage stage;
    absl::StatusOr<v1::StageResponse> response;
    std::list<std::jthread>::iterator thread;
  };
  absl::Mutex mutex;
  absl::CondVar changed;
  std::deque<Landed> landed;
  std::stop_source flights;
  std::stop_callback forward(calls_.get_token(), [&flights] { flights.request_stop(); });
  std::vector<v1::Failure> failures;
  absl::Status failed;
  JobProgress progress;
  std::list<std::jthread> threads;  // one for each stage that runs; after what they use

  const auto begin = [&](const Stage& stage) -> absl::Status {
    const bool saves = stage.job_state == v1::JOB_STATE_CHECKPOINTING;
    {
      absl::MutexLock lock(&mutex_);
      saving_ = saves;
    }
    RETURN_IF_ERROR(
        Enter(stage.job_state, saves ? absl::StrCat("saves a checkpoint at step ", progress.step) : "runs"));
    if (stage.item.has_value()) {
      const absl::Time now = environment_.clock->Now();
      environment_.metrics->Observe(
          MetricId::kStageWait, {StageName(stage.request)},
          absl::ToDoubleSeconds(now - ReadySince(plan.flow, progress.flow, *stage.item, now)));
    }
    OnBegun(plan, stage, &progress);
    const v1::StageRequest request = Complete(stage.request);
    const auto thread = threads.emplace(threads.end());
    *thread = std::jthread([&, stage, request, thread] {
      absl::StatusOr<v1::StageResponse> response = RunStage(request, stage.ranks, flights.get_token());
      absl::MutexLock lock(&mutex);
      landed.push_back({stage, std::move(response), thread});
      changed.SignalAll();
    });
    return absl::OkStatus();
  };
  const auto on_landed = [&](const Landed& result) -> absl::Status {
    RETURN_IF_ERROR(result.response.status());
    ASSIGN_OR_RETURN(progress, OnResult(plan, progress, result.stage, *result.response, environment_.clock->Now()));
    Record(result.stage, *result.response, progress);
    absl::MutexLock lock(&mutex_);
    saving_ = false;
    // A cancel that came during the save is due now.
    return cancel_time_.has_value() ? absl::CancelledError("cancelled") : absl::OkStatus();
  };
  const auto fail = [&](const absl::Status& status) {
    if (failed.ok()) failed = status;
    if (!absl::IsCancelled(status)) failures.push_back(FailureFromStatus(status, record_.job_id));
  };

  std::optional<absl::Time> settled;  // once something failed: when the rest is given up
  while (true) {
    if (failed.ok()) {
      const std::vector<Stage> ready = ReadyStages(plan, progress);
      if (ready.empty() && threads.empty()) break;
      for (const Stage& stage : ready) {
        if (const absl::Status begun = begin(stage); !begun.ok()) {
          fail(begun);
          break;
        }
      }
    }
    if (!failed.ok() && !settled.has_value()) settled = environment_.clock->Now() + environment_.options.settle;
    if (threads.empty()) break;
    std::optional<Landed> next;
    {
      absl::MutexLock lock(&mutex);
      while (landed.empty() && (!settled.has_value() || environment_.clock->Now() < *settled)) {
        if (settled.has_value()) {
          environment_.clock->WaitUntil(&mutex, &changed, *settled);
        } else {
          changed.Wait(&mutex);
        }
      }
      if (!landed.empty()) {
        next = std::move(landed.front());
        landed.pop_front();
      }
    }
    if (!next.has_value()) {
      // Outside the lock: it runs callbacks.
      flights.request_stop();
      settled = absl::InfiniteFuture();
      continue;
    }
    threads.erase(next->thread);
    const bool given_up = flights.stop_requested();
    const absl::Status status = on_landed(*next);
    // What fails after it was given up failed because of that.
    if (!status.ok() && (failed.ok() || !given_up)) fail(status);
  }
  if (failed.ok()) {
    if (progress.initialized && (plan.forward_only || progress.step >= progress.total_steps)) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("no stage can begin at step ", progress.step, " of ", progress.total_steps));
  }
  if (failures.size() < 2) return failed;
  const v1::Failure cause = RootCause(failures);
  return WithFailure(absl::AbortedError(cause.message()), cause);
}

absl::Duration AttemptRunner::TimeoutOf(const v1::StageRequest& request) const {
  const AttemptOptions& options = environment_.options;
  switch (request.op_case()) {
    case v1::StageRequest::kInitialize:
      return options.initialize_timeout;
    case v1::StageRequest::kInferBatch:
      return options.infer_timeout;
    case v1::StageRequest::kSaveCheckpoint:
      return options.save_timeout;
    case v1::StageRequest::kExportWeights:
      return options.export_timeout;
    default:
      return options.train_timeout;
  }
}

v1::StageRequest AttemptRunner::Complete(const v1::StageRequest& of_plan) {
  v1::StageRequest request = of_plan;
  request.set_sequence(++sequence_);
  if (request.has_initialize()) {
    v1::InitializeOp* op = request.mutable_initialize();
    *op->mutable_spec() = spec_;
    op->set_job_id(record_.job_id);
    op->set_attempt(record_.attempt);
    op->set_world_size(gang_.world_size());
    op->set_rendezvous_address(rendezvous_address_);
  }
  return request;
}

absl::StatusOr<v1::StageResponse> AttemptRunner::RunStage(const v1::StageRequest& request,
                                                          const std::vector<int32_t>& ranks,
                                                          std::stop_token stop) const {
  const absl::Time start = environment_.clock->Now();
  ASSIGN_OR_RETURN(const auto answers, gang_.RunStage(request, ranks, TimeoutOf(request), stop));
  const std::string name = StageName(request);
  environment_.metrics->Observe(MetricId::kStageDuration, {name},
                                absl::ToDoubleSeconds(environment_.clock->Now() - start));
  ASSIGN_OR_RETURN(v1::StageResponse response, Combine(answers, ranks.empty() ? AllRanks(gang_.world_size()) : ranks));
  if (response.has_dataflow()) {
    environment_.metrics->Increment(MetricId::kStageBytes, {name},
                                    static_cast<double>(response.dataflow().received_bytes()));
    environment_.metrics->Increment(MetricId::kStageTokens, {name}, static_cast<double>(response.dataflow().tokens()));
  }
  return response;
}

void AttemptRunner::Record(const Stage& stage, const v1::StageResponse& response, const JobProgress& progress) {
  // The history tells of whole steps.
  if (response.has_dataflow() && !response.dataflow().has_ended_step()) return;
  Happening happening;
  progress_.set_step(progress.step);
  progress_.set_total_steps(progress.total_steps);
  if (response.has_initialize()) {
    const v1::InitializeResult& result = response.initialize();
    progress_.set_checkpoint_step(progress.last_checkpoint_step);
    progress_.clear_eta_seconds();
    happening.message =
        absl::StrCat("loaded on ", result.device(), ": ", result.parameters(), " parameters, ", result.train_rows(),
                     " rows, ", result.total_steps(), " steps; ", result.resume_reason());
  } else if (response.has_train_batch() || response.has_dataflow()) {
    const v1::StepMetrics& step = response.has_dataflow() ? response.dataflow().ended_step() : response.train_batch();
    eta_.OnStep(environment_.clock->Now(), step.step(), progress.total_steps);
    progress_.set_epoch(step.epoch());
    *progress_.mutable_last_step() = step;
    if (eta_.seconds().has_value()) progress_.set_eta_seconds(*eta_.seconds());
    happening.step = step;
    happening.message = DescribeStep(step, progress.total_steps);
  } else if (response.has_infer_batch()) {
    const v1::ValidationMetrics& validation = response.infer_batch();
    happening.validation = validation;
    if (const auto score = validation.metrics().find("val/score/mean"); score != validation.metrics().end()) {
      if (!progress_.has_first_val_score()) progress_.set_first_val_score(score->second);
      progress_.set_last_val_score(score->second);
      happening.message = absl::StrFormat("validation at step %d: score %.4f over %d answers", validation.step(),
                                          score->second, validation.samples());
    } else if (!validation.has_loss()) {
      happening.message = absl::StrFormat("validation at step %d: none of the %d answers has a score",
                                          validation.step(), validation.samples());
    } else {
      if (!progress_.has_first_val_loss()) progress_.set_first_val_loss(validation.loss());
      progress_.set_last_val_loss(validation.loss());
      happening.message = absl::StrFormat("validation at step %d: loss %.4f over %d tokens", validation.step(),
                                          validation.loss(), validation.scored_tokens());
    }
  } else if (response.has_save_checkpoint()) {
    const v1::CheckpointResult& result = response.save_checkpoint();
    progress_.set_checkpoint_step(result.step());
    losses_ = 0;  // this attempt got something done: the losses before it do not count
    happening.checkpoint_step = result.step();
    happening.message = absl::StrFormat("checkpoint of step %d in %s (%.1f MB, %.1f s)", result.step(), result.path(),
                                        static_cast<double>(result.bytes()) / 1e6, result.seconds());
  } else if (response.has_export_weights()) {
    output_path_ = response.export_weights().path();
    happening.message = absl::StrCat("model written to ", output_path_);
  } else {
    happening.message = absl::StrCat(StageName(stage.request), " done");
  }
  environment_.ledger->Note(record_.job_id, std::move(happening), &progress_);
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
