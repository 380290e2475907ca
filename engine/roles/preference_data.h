// The rows of a job of preference tuning: pairs of answers, or single answers with a label.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/data/preference_dataset.h"
#include "engine/roles/sequence_groups.h"

namespace sluice::engine {

// Immutable after Open; threads may share it.
class PreferenceData {
 public:
  // `pairs`: the rows are pairs. Errors are those of PreferenceDataset::Open; `encoder` is used during the call only.
  static absl::StatusOr<PreferenceData> Open(bool pairs, const PreferenceDatasetOptions& options,
                                             const ChatRowEncoder& encoder);

  bool has_pairs() const { return std::holds_alternative<std::unique_ptr<PairDataset>>(rows_); }
  int64_t rows() const;
  int64_t steps_per_epoch() const;
  const PreferenceStats& stats() const;
  const std::string& content_hash() const;
  // InvalidArgument: step < 0. `step` counts from 0 over the whole run.
  absl::StatusOr<StepPairs> RowsForStep(int64_t step) const;

  // One group for each of `rows`: the chosen and then the rejected sequence of a pair, or the one of a labelled answer.
  // They point into this object.
  std::vector<SequenceGroup> GroupsOf(absl::Span<const int64_t> rows) const;

  // By how much the better answer of a pair is better; 0 where the row does not say. REQUIRES: has_pairs().
  double margin(int64_t row) const;
  // REQUIRES: !has_pairs().
  const LabelledRow& labelled(int64_t row) const;

 private:
  using Rows = std::variant<std::unique_ptr<PairDataset>, std::unique_ptr<LabelledDataset>>;
  explicit PreferenceData(Rows rows) : rows_(std::move(rows)) {}

  Rows rows_;
};

// The unrelated pairs from which kto estimates its KL divergence: the prompt of each of `rows` with the response of the
// one before it, in a circle, cut at its end to `max_length` tokens. Of a single row there is none.
std::vector<EncodedRow> MismatchedRows(const PreferenceData& data, absl::Span<const int64_t> rows, int64_t max_length);

}  // namespace sluice::engine
