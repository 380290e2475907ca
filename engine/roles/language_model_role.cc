#include "engine/roles/language_model_role.h"

#include "common/file_system.h"
#include "common/status_macros.h"
#include "engine/roles/job_options.h"

namespace sluice::engine {

absl::Status LanguageModelRole::OpenData() {
  ASSIGN_OR_RETURN(DatasetOptions train_options, TrainDatasetOptions(spec_));
  ASSIGN_OR_RETURN(train_, Dataset::Open(train_options, *encoder_, PosixFileSystem()));
  if (!spec_.data().val_files().empty()) {
    ASSIGN_OR_RETURN(DatasetOptions validation_options, ValidationDatasetOptions(spec_));
    ASSIGN_OR_RETURN(validation_, Dataset::Open(validation_options, *encoder_, PosixFileSystem()));
  }
  return absl::OkStatus();
}

ModelRole::TrainingData LanguageModelRole::training_data() const {
  if (train_ == nullptr) return {};
  return {train_->rows(), train_->steps_per_epoch(), SplitPath(train_->cache().folder()).name};
}

RowLengths LanguageModelRole::row_lengths() const {
  if (train_ == nullptr) return {};
  const TokenStats& stats = train_->stats();
  return {stats.longest_row, static_cast<double>(stats.tokens) / static_cast<double>(stats.rows_kept)};
}

absl::Status LanguageModelRole::FillDataCounts(bool data_only, v1::InitializeResult* result) const {
  const TokenStats& stats = train_->stats();
  result->set_train_rows(stats.rows_kept);
  result->set_dropped_rows(stats.rows_dropped);
  result->set_truncated_rows(stats.rows_truncated);
  result->set_train_tokens(stats.tokens);
  result->set_train_scored_tokens(stats.scored_tokens);
  if (validation_ != nullptr) result->set_val_rows(validation_->rows());
  if (!data_only) return absl::OkStatus();
  const int64_t ranks = int64_t{spec_.trainer().nnodes()} * spec_.trainer().n_gpus_per_node();
  for (int64_t step = 0; step < train_->steps_per_epoch(); ++step) {
    ASSIGN_OR_RETURN(const StepBatches batches, train_->MicroBatchesForStep(step, 0, ranks));
    result->set_epoch_micro_batches(result->epoch_micro_batches() +
                                    static_cast<int64_t>(batches.micro_batches.size()) * ranks);
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
