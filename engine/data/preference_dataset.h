// Preference pairs, or labelled completions, tokenised and held in memory.
//
//   ASSIGN_OR_RETURN(auto pairs, PairDataset::Open(options, *encoder));
//   ASSIGN_OR_RETURN(StepPairs step, pairs->RowsForStep(steps_done));
//   for (int64_t row : step.rows) Train(pairs->row(row).pair.chosen, pairs->row(row).pair.rejected);
//
// Validation: open with shuffle = false and take row(0) .. row(rows() - 1).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/preference_encoder.h"
#include "engine/data/sampler.h"

namespace sluice::engine {

struct PreferenceDatasetOptions {
  std::vector<std::string> files;              // paths and globs
  std::string files_key = "data.train_files";  // the configuration key they come from, for messages
  PreferenceColumns columns;
  int64_t max_length = 1024;  // tokens of prompt and response
  Truncation truncation = Truncation::kError;
  int64_t max_rows = -1;   // the first so many rows; -1: all
  int threads = 1;         // that tokenise
  int64_t batch_size = 1;  // rows of a step
  bool shuffle = true;
  uint64_t seed = 0;
};

struct PreferenceStats {
  int64_t rows_read = 0;
  int64_t rows_truncated = 0;
  int64_t rows_dropped = 0;  // a response was cut off whole, so that there is nothing to learn
  int64_t longest_sequence = 0;
};

struct PairRow {
  int64_t sample_id = 0;  // the row's number in the files
  EncodedPair pair;
  double margin = 0;  // 0 where the row has none
};

struct LabelledRow {
  int64_t sample_id = 0;
  EncodedCompletion completion;
  bool wanted = false;
};

struct StepPairs {
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  bool ends_epoch = false;
  std::vector<int64_t> rows;  // batch_size of them, fewer in an epoch's last step
};

// Immutable after Open; threads may share it.
template <typename RowType>
class PreferenceDataset {
 public:
  // Reads and tokenises all rows. Errors begin with options.files_key and name the file and row: a malformed row, one
  // longer than max_length where `truncation` is kError, no row that is kept, an option out of range. `encoder` is used
  // during the call only. The result does not depend on `threads`.
  static absl::StatusOr<std::unique_ptr<PreferenceDataset>> Open(const PreferenceDatasetOptions& options,
                                                                 const ChatRowEncoder& encoder);

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }  // those kept
  // REQUIRES: 0 <= index < rows().
  const RowType& row(int64_t index) const { return rows_[index]; }
  const PreferenceStats& stats() const { return stats_; }
  // Hash of the rows kept, in order: equal on every rank of a job.
  const std::string& content_hash() const { return content_hash_; }

  int64_t steps_per_epoch() const { return StepsPerEpoch(sampler_); }

  // A pure function of `step`, the seed and the data. `step` counts from 0 over the whole run.
  // kInvalidArgument: step < 0.
  absl::StatusOr<StepPairs> RowsForStep(int64_t step) const;

 private:
  PreferenceDataset() = default;

  std::vector<RowType> rows_;
  PreferenceStats stats_;
  std::string content_hash_;
  SamplerOptions sampler_;
};

using PairDataset = PreferenceDataset<PairRow>;
using LabelledDataset = PreferenceDataset<LabelledRow>;

}  // namespace sluice::engine
