// AttemptRunner: the stages of its course.

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "controller/dataflow/attempt_runner.h"
#include "controller/dataflow/failure.h"
#include "controller/dataflow/stage_flights.h"
#include "controller/dataflow/stage_span.h"

namespace sluice::controller {
namespace {

void RecordBest(bool there_is_one, const v1::BestCheckpoint& best, v1::Progress* progress) {
  progress->clear_best_checkpoint_step();
  progress->clear_best_checkpoint_value();
  if (!there_is_one) return;
  progress->set_best_checkpoint_step(best.step());
  progress->set_best_checkpoint_value(best.value());
}

}  // namespace

absl::Status AttemptRunner::BeginStage(const JobPlan& plan, const Stage& stage, JobProgress* progress,
                                       StageFlights* flights) {
  const bool saves = stage.job_state == v1::JOB_STATE_CHECKPOINTING;
  {
    absl::MutexLock lock(&mutex_);
    saving_ = saves;
  }
  RETURN_IF_ERROR(Enter(stage.job_state, saves ? absl::StrCat("saves a checkpoint at step ", progress->step) : "runs"));
  if (stage.item.has_value()) {
    const absl::Time now = environment_.clock->Now();
    environment_.metrics->Observe(MetricId::kStageWait, {StageName(stage.request)},
                                  absl::ToDoubleSeconds(now - ReadySince(plan.flow, progress->flow, *stage.item, now)));
  }
  OnBegun(plan, stage, progress);
  flights->Launch(stage, [this, request = Complete(stage.request), ranks = stage.ranks](std::stop_token stop) {
    return RunStage(request, ranks, stop);
  });
  return absl::OkStatus();
}

absl::Status AttemptRunner::EndStage(const JobPlan& plan, const StageFlights::Landed& landed, JobProgress* progress) {
  RETURN_IF_ERROR(landed.response.status());
  ASSIGN_OR_RETURN(*progress, OnResult(plan, *progress, landed.stage, *landed.response, environment_.clock->Now()));
  spans_.push_back(SpanOf(plan.flow, landed.stage, landed.began, landed.ended));
  RecordMetrics(landed);
  RecordWarnings(*landed.response);
  Record(landed.stage, *landed.response, *progress);
  absl::MutexLock lock(&mutex_);
  saving_ = false;
  // A cancel that came during the save is due now.
  return cancel_time_.has_value() ? absl::CancelledError("cancelled") : absl::OkStatus();
}

absl::Status AttemptRunner::RunCourse(const JobPlan& plan) {
  JobProgress progress;
  absl::Status failed;
  std::vector<v1::Failure> failures;
  absl::Time settled = absl::InfiniteFuture();  // once something failed: when the rest is given up
  StageFlights flights(calls_.get_token(), environment_.clock);
  const auto fail = [&](const absl::Status& status) {
    if (status.ok()) return;
    if (failed.ok()) {
      failed = status;
      settled = environment_.clock->Now() + environment_.options.settle;
    }
    if (!absl::IsCancelled(status)) failures.push_back(FailureFromStatus(status, record_.job_id));
  };

  do {
    if (failed.ok()) {
      for (const Stage& stage : ReadyStages(plan, progress)) {
        if (failed.ok()) fail(BeginStage(plan, stage, &progress, &flights));
      }
    }
    if (flights.empty()) break;
    const bool given_up = flights.stopped();
    const std::optional<StageFlights::Landed> landed = flights.Land(settled);
    if (!landed.has_value()) {
      flights.Stop();
      settled = absl::InfiniteFuture();
      continue;
    }
    const absl::Status ended = EndStage(plan, *landed, &progress);
    // What fails after it was given up failed because of that.
    if (failed.ok() || !given_up) fail(ended);
  } while (true);

  if (failed.ok()) {
    if (progress.initialized && (plan.forward_only || progress.step >= progress.total_steps)) return failed;
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
  ASSIGN_OR_RETURN(const auto answers, gang_.RunStage(request, ranks, TimeoutOf(request), stop));
  return Combine(answers, ranks.empty() ? AllRanks(gang_.world_size()) : ranks);
}

void AttemptRunner::RecordMetrics(const StageFlights::Landed& landed) {
  const std::string name = StageName(landed.stage.request);
  environment_.metrics->Observe(MetricId::kStageDuration, {name}, absl::ToDoubleSeconds(landed.ended - landed.began));
  if (!landed.response->has_dataflow()) return;
  const v1::DataflowResult& result = landed.response->dataflow();
  environment_.metrics->Increment(MetricId::kStageBytes, {name}, static_cast<double>(result.received_bytes()));
  environment_.metrics->Increment(MetricId::kStageTokens, {name}, static_cast<double>(result.tokens()));
}

void AttemptRunner::RecordWarnings(const v1::StageResponse& response) {
  for (const std::string& warning : response.warnings()) {
    if (!warnings_.insert(warning).second) continue;
    Happening happening;
    happening.message = warning;
    happening.warning = true;
    environment_.ledger->Note(record_.job_id, std::move(happening), nullptr);
  }
}

void AttemptRunner::Record(const Stage& stage, const v1::StageResponse& response, const JobProgress& progress) {
  // The history tells of whole steps.
  if (response.has_dataflow() && !response.dataflow().has_ended_step()) return;
  Happening happening;
  happening.spans = std::exchange(spans_, {});
  progress_.set_step(progress.step);
  progress_.set_total_steps(progress.total_steps);
  if (response.has_initialize()) {
    const v1::InitializeResult& result = response.initialize();
    progress_.set_checkpoint_step(progress.last_checkpoint_step);
    progress_.clear_eta_seconds();
    RecordBest(result.has_best(), result.best(), &progress_);
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
    RecordBest(result.has_best(), result.best(), &progress_);
    losses_ = 0;  // this attempt got something done: the losses before it do not count
    happening.checkpoint_step = result.step();
    happening.message = absl::StrFormat("checkpoint of step %d in %s (%.1f MB, %.1f s)", result.step(), result.path(),
                                        static_cast<double>(result.bytes()) / 1e6, result.seconds());
    if (result.has_best()) {
      absl::StrAppendFormat(&happening.message, "; the best is that of step %d, %s %.6g", result.best().step(),
                            spec_.checkpoint().best_metric(), result.best().value());
    }
  } else if (response.has_export_weights()) {
    output_path_ = response.export_weights().path();
    happening.message = absl::StrCat("model written to ", output_path_);
  } else {
    happening.message = absl::StrCat(StageName(stage.request), " done");
  }
  environment_.ledger->Note(record_.job_id, std::move(happening), &progress_);
}

}  // namespace sluice::controller
