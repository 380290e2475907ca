// PreferenceRole: what it opens, steps and validation.
#include "engine/roles/preference_role.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/config/dataflow.h"
#include "common/status_macros.h"
#include "engine/device/engine_stream.h"
#include "engine/model/flops.h"
#include "engine/roles/job_options.h"

namespace sluice::engine {

absl::Status PreferenceRole::OpenData() {
  ASSIGN_OR_RETURN(tuning_, PreferenceTuningOf(spec_));
  ASSIGN_OR_RETURN(const PreferenceDatasetOptions train, TrainPreferenceOptions(spec_));
  ASSIGN_OR_RETURN(train_, PreferenceData::Open(tuning_.pairs, train, *encoder_));
  if (!spec_.data().val_files().empty()) {
    ASSIGN_OR_RETURN(const PreferenceDatasetOptions validation, ValidationPreferenceOptions(spec_));
    ASSIGN_OR_RETURN(validation_, PreferenceData::Open(tuning_.pairs, validation, *encoder_));
  }
  return absl::OkStatus();
}

ModelRole::TrainingData PreferenceRole::training_data() const {
  if (!train_.has_value()) return {};
  return {train_->rows(), train_->steps_per_epoch(), train_->content_hash()};
}

RowLengths PreferenceRole::row_lengths() const {
  if (!train_.has_value()) return {};
  return {.longest = train_->stats().longest_sequence, .mean = 0};
}

absl::Status PreferenceRole::FillDataCounts(bool data_only, v1::InitializeResult* result) const {
  const PreferenceStats& stats = train_->stats();
  result->set_train_rows(train_->rows());
  result->set_dropped_rows(stats.rows_dropped);
  result->set_truncated_rows(stats.rows_truncated);
  if (validation_.has_value()) result->set_val_rows(validation_->rows());
  const int64_t ranks = int64_t{spec_.trainer().nnodes()} * spec_.trainer().n_gpus_per_node();
  for (int64_t step = 0; step < train_->steps_per_epoch(); ++step) {
    ASSIGN_OR_RETURN(const StepPairs rows, train_->RowsForStep(step));
    const std::vector<SequenceGroup> groups = train_->GroupsOf(rows.rows);
    for (const SequenceGroup& group : groups) {
      result->set_train_tokens(result->train_tokens() + group.tokens());
      result->set_train_scored_tokens(result->train_scored_tokens() + group.scored_tokens());
    }
    if (!data_only) continue;
    ASSIGN_OR_RETURN(const BatchPlan plan, PlanGroups(groups, ranks, spec_.data().max_token_len_per_gpu()));
    result->set_epoch_micro_batches(result->epoch_micro_batches() + plan.micro_batches_per_rank() * ranks);
  }
  return absl::OkStatus();
}

CausalLmOptions PreferenceRole::model_options() const {
  CausalLmOptions options = ModelOptions(spec_);
  options.token_losses = !tuning_.reward_model.has_value();
  return options;
}

absl::Status PreferenceRole::OpenRest() {
  if (!train_.has_value() || !NeedsReference(spec_)) return absl::OkStatus();
  ASSIGN_OR_RETURN(reference_, OpenReferenceModel(spec_, *encoder_, device_, model_options()));
  return absl::OkStatus();
}

absl::StatusOr<v1::StepMetrics> PreferenceRole::TrainBatch(const v1::TrainBatchOp& op) {
  RETURN_IF_ERROR(RequireTrainable());
  const int64_t step = steps_done_ + 1;
  if (op.step() != step) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", op.step(), " is asked for, but ", steps_done_, " steps are done"));
  }
  const absl::Time start = absl::Now();
  PhaseTimer phases(EngineStream(device_));
  ASSIGN_OR_RETURN(const StepPairs rows, train_->RowsForStep(step - 1));
  ASSIGN_OR_RETURN(Numbers numbers, Run(*train_, rows.rows, Pass::kTrain, &phases));
  phases.End("communication");
  RETURN_IF_ERROR(ApplyGradients(/*loss=*/{}));
  ASSIGN_OR_RETURN(const OptimizerStepResult applied, ReadApplied());
  phases.End("optimizer");

  v1::StepMetrics metrics;
  double tokens = 0, scored_tokens = 0, squared_lengths = 0;
  const std::vector<SequenceGroup> groups = train_->GroupsOf(rows.rows);
  for (const SequenceGroup& group : groups) {
    tokens += static_cast<double>(group.tokens());
    scored_tokens += static_cast<double>(group.scored_tokens());
    squared_lengths += group.squared_lengths();
  }
  ASSIGN_OR_RETURN(const BatchPlan plan,
                   PlanGroups(groups, communicator_->world_size(), spec_.data().max_token_len_per_gpu()));
  std::vector<int64_t> lengths;
  for (const SequenceGroup& group : groups) lengths.push_back(group.tokens());
  const std::vector<int64_t> rank_tokens = plan.TokensOfRanks(lengths);
  const auto [fewest, most] = std::minmax_element(rank_tokens.begin(), rank_tokens.end());
  (*metrics.mutable_metrics())["global_seqlen/balanced_min"] = static_cast<double>(*fewest);
  (*metrics.mutable_metrics())["global_seqlen/balanced_max"] = static_cast<double>(*most);
  if (applied.skipped) {
    std::vector<int64_t> sample_ids;
    for (const std::vector<int32_t>& micro_batch : plan.ranks[static_cast<size_t>(options_.rank)]) {
      for (const int32_t place : micro_batch) sample_ids.push_back(groups[static_cast<size_t>(place)].sample_id);
    }
    RETURN_IF_ERROR(NoteSkippedStep(sample_ids));
  } else {
    counters_.skipped_in_a_row = 0;
    ++counters_.optimizer_updates;
  }
  metrics.set_step(step);
  metrics.set_epoch(rows.epoch);
  metrics.set_loss(numbers["loss"]);
  numbers.erase("loss");
  metrics.mutable_metrics()->insert(numbers.begin(), numbers.end());
  metrics.set_grad_norm(applied.grad_norm);
  metrics.set_lr(schedule_->LearningRate(schedule_steps_ + 1));
  metrics.set_weight_decay(schedule_->WeightDecay(schedule_steps_ + 1));
  metrics.set_tokens(static_cast<int64_t>(tokens));
  metrics.set_scored_tokens(static_cast<int64_t>(scored_tokens));
  metrics.set_micro_batches(plan.micro_batches_per_rank());
  metrics.set_token_slots(metrics.micro_batches() * spec_.data().max_token_len_per_gpu() * communicator_->world_size());
  metrics.set_samples(static_cast<int64_t>(rows.rows.size()));
  // A forward is a third of a forward and backward: the reference's; and those of the mismatched answers, about as
  // long.
  const double forwards = (reference_.model != nullptr ? 1.0 : 0.0) + (tuning_.pairs ? 0.0 : 2.0);
  metrics.set_model_flops(TrainingFlops(parameters_->config(), tokens, squared_lengths) * (1 + forwards / 3));
  counters_.samples += metrics.samples();
  counters_.tokens += metrics.tokens();
  counters_.loss_tokens += metrics.scored_tokens();
  ++schedule_steps_;
  ++steps_done_;
  metrics.set_skipped_nonfinite(applied.skipped);
  metrics.set_nonfinite_steps_total(counters_.skipped_updates);
  FillMemory(&metrics);
  for (const auto& [name, seconds] : phases.Seconds()) (*metrics.mutable_phase_seconds())[name] = seconds;
  metrics.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  if (metrics_log_ != nullptr) RETURN_IF_ERROR(metrics_log_->Write(metrics));
  return metrics;
}

absl::StatusOr<v1::ValidationMetrics> PreferenceRole::InferBatch(const v1::InferBatchOp& op) {
  RETURN_IF_ERROR(RequireModel());
  if (!validation_.has_value()) {
    return absl::FailedPreconditionError("data.val_files: there are none to validate on");
  }
  const absl::Time start = absl::Now();
  std::vector<int64_t> rows(static_cast<size_t>(validation_->rows()));
  std::iota(rows.begin(), rows.end(), 0);
  ASSIGN_OR_RETURN(const Numbers numbers, Run(*validation_, rows, Pass::kForward, /*phases=*/nullptr));
  v1::ValidationMetrics metrics;
  metrics.set_step(op.step());
  for (const auto& [name, value] : numbers) {
    if (name == "loss") {
      metrics.set_loss(value);
    } else {
      (*metrics.mutable_metrics())[absl::StrCat("val/", name)] = value;
    }
  }
  for (const SequenceGroup& group : validation_->GroupsOf(rows)) {
    metrics.set_scored_tokens(metrics.scored_tokens() + group.scored_tokens());
  }
  metrics.set_samples(validation_->rows());
  metrics.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  RETURN_IF_ERROR(NoteValidation(&metrics));
  if (metrics_log_ != nullptr) RETURN_IF_ERROR(metrics_log_->Write(metrics));
  return metrics;
}

}  // namespace sluice::engine
