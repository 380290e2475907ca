// LanguageModelRole: steps and validation.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/failpoint.h"
#include "common/status_macros.h"
#include "engine/device/engine_stream.h"
#include "engine/device/phase_timer.h"
#include "engine/model/flops.h"
#include "engine/roles/language_model_role.h"

namespace sluice::engine {
namespace {

std::vector<int64_t> RowsOf(const StepBatches& batches) {
  std::vector<int64_t> rows;
  for (const MicroBatch& batch : batches.micro_batches) {
    rows.insert(rows.end(), batch.sample_ids.begin(), batch.sample_ids.end());
  }
  return rows;
}

double SumOfSquaredLengths(const StepBatches& batches) {
  double sum = 0;
  for (const MicroBatch& batch : batches.micro_batches) {
    for (int64_t i = 0; i < batch.sequences(); ++i) {
      const double length = batch.cu_seqlens[i + 1] - batch.cu_seqlens[i];
      sum += length * length;
    }
  }
  return sum;
}

}  // namespace

absl::Status LanguageModelRole::ForwardOn(const MicroBatch& batch) { return model_->Forward(batch); }

absl::Status LanguageModelRole::ForwardBackwardOn(const MicroBatch& batch, double loss_scale, GradientUse use) {
  return model_->ForwardBackward(batch, loss_scale, use);
}

absl::StatusOr<std::map<std::string, double>> LanguageModelRole::FurtherNumbers(int64_t) {
  return std::map<std::string, double>();
}

absl::StatusOr<LanguageModelRole::StepTotals> LanguageModelRole::RunStep(int64_t step, Pass pass) {
  StepTotals totals;
  ASSIGN_OR_RETURN(totals.batches, train_->MicroBatchesForStep(step - 1, options_.rank, communicator_->world_size()));
  totals.sum_of_squared_lengths = SumOfSquaredLengths(totals.batches);
  const double loss_scale = 1.0 / static_cast<double>(totals.batches.scored_tokens);
  RETURN_IF_ERROR(model_->ResetLoss());
  GradientMode mode = pass == Pass::kTrain ? GradientMode::kOverwrite : GradientMode::kAccumulate;
  const std::vector<MicroBatch>& micro_batches = totals.batches.micro_batches;
  for (const MicroBatch& batch : micro_batches) {
    // With a step's last micro-batch its gradients are complete.
    Communicator* sum_over = pass == Pass::kTrain && &batch == &micro_batches.back() ? communicator_.get() : nullptr;
    RETURN_IF_ERROR(pass == Pass::kForward ? ForwardOn(batch) : ForwardBackwardOn(batch, loss_scale, {mode, sum_over}));
    mode = GradientMode::kAccumulate;
    Failpoint("engine.micro_batch");
  }
  // A rank without a micro-batch still takes part in the sum over all ranks.
  if (pass == Pass::kTrain && micro_batches.empty()) {
    RETURN_IF_ERROR(parameters_->ZeroGradients());
    RETURN_IF_ERROR(model_->SumGradients(*communicator_));
  }
  return totals;
}

absl::StatusOr<LanguageModelRole::IssuedStep> LanguageModelRole::IssueStep(int64_t step) {
  IssuedStep issued;
  issued.step = step;
  issued.phases = std::make_unique<PhaseTimer>(EngineStream(device_));
  ASSIGN_OR_RETURN(issued.totals, RunStep(step, Pass::kTrain));
  issued.phases->End("forward_backward");
  return issued;
}

absl::StatusOr<v1::StepMetrics> LanguageModelRole::TrainBatch(const v1::TrainBatchOp& op) {
  RETURN_IF_ERROR(RequireTrainable());
  const int64_t step = steps_done_ + 1;
  if (op.step() != step) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", op.step(), " is asked for, but ", steps_done_, " steps are done"));
  }
  const absl::Time start = absl::Now();
  IssuedStep issued;
  if (ahead_.has_value() && ahead_->step == step) {
    issued = *std::move(ahead_);
  } else {
    ASSIGN_OR_RETURN(issued, IssueStep(step));
  }
  ahead_.reset();
  const StepTotals& totals = issued.totals;
  PhaseTimer& phases = *issued.phases;
  std::vector<double> squared_lengths = {totals.sum_of_squared_lengths};
  RETURN_IF_ERROR(communicator_->AllReduceSum(absl::MakeSpan(squared_lengths)));
  RETURN_IF_ERROR(communicator_->AllReduceSum(model_->loss_sum()));
  phases.End("communication");
  RETURN_IF_ERROR(ApplySummedGradients(model_->loss_sum()));
  phases.End("optimizer");
  // A GPU goes on with the next step's forward and backward while this one's results travel to the controller and its
  // order for the next travels back. Work runs in order, so they see the weights of this step's update. A CPU would
  // only answer later.
  if (device_.is_cuda() && step < total_steps_ && !reads_numbers()) {
    ASSIGN_OR_RETURN(ahead_, IssueStep(step + 1));
  }
  ASSIGN_OR_RETURN(const OptimizerStepResult applied, ReadApplied());
  const StepBatches& batches = totals.batches;
  const double loss = applied.loss_sum / static_cast<double>(std::max<int64_t>(1, batches.scored_tokens));
  v1::StepMetrics metrics;
  ASSIGN_OR_RETURN(const auto further, FurtherNumbers(std::max<int64_t>(1, batches.scored_tokens)));
  metrics.mutable_metrics()->insert(further.begin(), further.end());
  // How evenly the rows are dealt to the ranks.
  (*metrics.mutable_metrics())["global_seqlen/balanced_min"] = static_cast<double>(batches.fewest_rank_tokens);
  (*metrics.mutable_metrics())["global_seqlen/balanced_max"] = static_cast<double>(batches.most_rank_tokens);
  for (const auto& [name, seconds] : phases.Seconds()) (*metrics.mutable_phase_seconds())[name] = seconds;
  metrics.set_lr(schedule_->LearningRate(schedule_steps_ + 1));
  metrics.set_weight_decay(schedule_->WeightDecay(schedule_steps_ + 1));
  if (applied.skipped) {
    RETURN_IF_ERROR(NoteSkippedStep(RowsOf(totals.batches)));
  } else {
    counters_.skipped_in_a_row = 0;
    ++counters_.optimizer_updates;
  }
  counters_.samples += batches.rows;
  counters_.tokens += batches.tokens;
  counters_.loss_tokens += batches.scored_tokens;
  ++schedule_steps_;
  ++steps_done_;

  const auto micro_batches = static_cast<int64_t>(batches.micro_batches.size());
  metrics.set_step(step);
  metrics.set_epoch(batches.epoch);
  metrics.set_loss(loss);
  metrics.set_grad_norm(applied.grad_norm);
  metrics.set_tokens(batches.tokens);
  metrics.set_scored_tokens(batches.scored_tokens);
  metrics.set_token_slots(micro_batches * spec_.data().max_token_len_per_gpu() * communicator_->world_size());
  metrics.set_samples(batches.rows);
  metrics.set_micro_batches(micro_batches);
  metrics.set_model_flops(
      TrainingFlops(parameters_->config(), static_cast<double>(batches.tokens), squared_lengths[0]) +
      FurtherFlops(static_cast<double>(batches.tokens), squared_lengths[0]));
  metrics.set_skipped_nonfinite(applied.skipped);
  metrics.set_nonfinite_steps_total(counters_.skipped_updates);
  FillMemory(&metrics);
  metrics.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  if (metrics_log_ != nullptr) RETURN_IF_ERROR(metrics_log_->Write(metrics));
  return metrics;
}

absl::StatusOr<double> LanguageModelRole::SumLoss() {
  RETURN_IF_ERROR(communicator_->AllReduceSum(model_->loss_sum()));
  ASSIGN_OR_RETURN(const double loss_sum, model_->ReadLoss());
  RETURN_IF_ERROR(communicator_->device_status());
  return loss_sum;
}

absl::StatusOr<v1::ValidationMetrics> LanguageModelRole::InferBatch(const v1::InferBatchOp& op) {
  RETURN_IF_ERROR(RequireModel());
  if (validation_ == nullptr) return absl::FailedPreconditionError("data.val_files: there are none to validate on");
  const absl::Time start = absl::Now();
  int64_t scored_tokens = 0;
  ahead_.reset();  // its loss and activations are lost
  RETURN_IF_ERROR(model_->ResetLoss());
  for (int64_t step = 0; step < validation_->steps_per_epoch(); ++step) {
    ASSIGN_OR_RETURN(const StepBatches batches,
                     validation_->MicroBatchesForStep(step, options_.rank, communicator_->world_size()));
    for (const MicroBatch& batch : batches.micro_batches) RETURN_IF_ERROR(ForwardOn(batch));
    scored_tokens += batches.scored_tokens;
  }
  ASSIGN_OR_RETURN(const double loss_sum, SumLoss());
  v1::ValidationMetrics metrics;
  metrics.set_step(op.step());
  metrics.set_loss(loss_sum / static_cast<double>(std::max<int64_t>(1, scored_tokens)));
  metrics.set_scored_tokens(scored_tokens);
  ASSIGN_OR_RETURN(const auto further, FurtherNumbers(std::max<int64_t>(1, scored_tokens)));
  for (const auto& [name, value] : further) (*metrics.mutable_metrics())[absl::StrCat("val/", name)] = value;
  metrics.set_samples(validation_->rows());
  metrics.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  RETURN_IF_ERROR(NoteValidation(&metrics));
  if (metrics_log_ != nullptr) RETURN_IF_ERROR(metrics_log_->Write(metrics));
  return metrics;
}

absl::StatusOr<v1::ForwardBackwardResult> LanguageModelRole::ForwardBackward(const v1::ForwardBackwardOp& op) {
  RETURN_IF_ERROR(RequireModel());
  if (!op.forward_only()) RETURN_IF_ERROR(RequireTrainable());
  if (op.step() < 1) return absl::InvalidArgumentError(absl::StrCat("step ", op.step(), ": steps count from 1"));
  ASSIGN_OR_RETURN(const StepTotals totals, RunStep(op.step(), op.forward_only() ? Pass::kForward : Pass::kAccumulate));
  ASSIGN_OR_RETURN(const double loss_sum, SumLoss());
  v1::ForwardBackwardResult result;
  result.set_loss(loss_sum / static_cast<double>(std::max<int64_t>(1, totals.batches.scored_tokens)));
  result.set_scored_tokens(totals.batches.scored_tokens);
  return result;
}

}  // namespace sluice::engine
