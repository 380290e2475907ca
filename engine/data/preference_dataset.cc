#include "engine/data/preference_dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/data/content_hash.h"
#include "engine/data/encode_rows.h"
#include "engine/data/row_source.h"

namespace sluice::engine {
namespace {

absl::Status CheckOptions(const PreferenceDatasetOptions& options) {
  const std::pair<const char*, int64_t> at_least_one[] = {
      {"max_length", options.max_length}, {"batch_size", options.batch_size}, {"threads", options.threads}};
  for (const auto& [name, value] : at_least_one) {
    if (value < 1) return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", at least 1 expected"));
  }
  return absl::OkStatus();
}

// A row, and what became of its length.
template <typename RowType>
struct Encoded {
  RowType row;
  bool is_truncated = false;
};

std::vector<std::string> ColumnsOf(const PreferenceColumns& c, const PairRow*) {
  return {c.prompt, c.chosen, c.rejected, c.margin, c.tools};
}
std::vector<std::string> ColumnsOf(const PreferenceColumns& c, const LabelledRow*) {
  return {c.prompt, c.completion, c.label, c.tools};
}

absl::Status EncodeInto(const Row& row, const PreferenceDatasetOptions& options, const ChatRowEncoder& encoder,
                        Encoded<PairRow>* out) {
  ASSIGN_OR_RETURN(const PreferenceSample sample, PreferenceFromRow(row, options.columns));
  ASSIGN_OR_RETURN(out->row.pair, EncodePair(encoder, sample));
  ASSIGN_OR_RETURN(out->is_truncated, TruncatePair(options.truncation, options.max_length, &out->row.pair));
  out->row.margin = sample.margin.value_or(0);
  return absl::OkStatus();
}

absl::Status EncodeInto(const Row& row, const PreferenceDatasetOptions& options, const ChatRowEncoder& encoder,
                        Encoded<LabelledRow>* out) {
  ASSIGN_OR_RETURN(const LabelledSample sample, LabelledFromRow(row, options.columns));
  ASSIGN_OR_RETURN(out->row.completion, EncodeCompletion(encoder, sample));
  ASSIGN_OR_RETURN(out->is_truncated, TruncateCompletion(options.truncation, options.max_length, &out->row.completion));
  out->row.wanted = sample.wanted;
  return absl::OkStatus();
}

std::vector<const EncodedRow*> SequencesOf(const PairRow& row) { return {&row.pair.chosen, &row.pair.rejected}; }
std::vector<const EncodedRow*> SequencesOf(const LabelledRow& row) { return {&row.completion.row}; }

std::string RestOf(const PairRow& row) { return absl::StrCat(row.pair.prompt_tokens, " ", row.margin); }
std::string RestOf(const LabelledRow& row) { return absl::StrCat(row.completion.prompt_tokens, " ", row.wanted); }

template <typename RowType>
std::string HashOf(const std::vector<RowType>& rows) {
  ContentHasher hasher;
  for (const RowType& row : rows) {
    hasher.AddField(absl::StrCat(row.sample_id, " ", RestOf(row)));
    for (const EncodedRow* sequence : SequencesOf(row)) {
      hasher.AddField({reinterpret_cast<const char*>(sequence->ids.data()), sequence->ids.size() * sizeof(int32_t)});
      hasher.AddField({reinterpret_cast<const char*>(sequence->mask.data()), sequence->mask.size()});
    }
  }
  return hasher.Hex();
}

template <typename RowType>
absl::StatusOr<std::vector<Encoded<RowType>>> EncodeAll(const PreferenceDatasetOptions& options,
                                                        const ChatRowEncoder& encoder) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<RowSource> source, RowSource::Open(options.files, options.max_rows));
  const auto columns = ColumnsOf(options.columns, static_cast<const RowType*>(nullptr));
  return ConvertRows<Encoded<RowType>>(*source, columns, options.threads,
                                       [&](const Row& row) -> absl::StatusOr<Encoded<RowType>> {
                                         Encoded<RowType> encoded;
                                         RETURN_IF_ERROR(EncodeInto(row, options, encoder, &encoded));
                                         return encoded;
                                       });
}

}  // namespace

template <typename RowType>
absl::StatusOr<std::unique_ptr<PreferenceDataset<RowType>>> PreferenceDataset<RowType>::Open(
    const PreferenceDatasetOptions& options, const ChatRowEncoder& encoder) {
  absl::StatusOr<std::vector<Encoded<RowType>>> encoded = EncodeAll<RowType>(options, encoder);
  if (!encoded.ok()) return Annotate(encoded.status(), options.files_key);
  std::unique_ptr<PreferenceDataset> dataset(new PreferenceDataset());
  PreferenceStats& stats = dataset->stats_;
  stats.rows_read = static_cast<int64_t>(encoded->size());
  for (size_t i = 0; i < encoded->size(); ++i) {
    RowType& row = (*encoded)[i].row;
    stats.rows_truncated += (*encoded)[i].is_truncated;
    const std::vector<const EncodedRow*> sequences = SequencesOf(row);
    const bool is_whole = std::all_of(sequences.begin(), sequences.end(),
                                      [](const EncodedRow* sequence) { return ScorableTokens(*sequence) > 0; });
    if (!is_whole) {
      ++stats.rows_dropped;
      continue;
    }
    for (const EncodedRow* sequence : sequences) {
      stats.longest_sequence = std::max(stats.longest_sequence, static_cast<int64_t>(sequence->ids.size()));
    }
    row.sample_id = static_cast<int64_t>(i);
    dataset->rows_.push_back(std::move(row));
  }
  if (dataset->rows_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(options.files_key, ": of none of the ", stats.rows_read,
                                                   " rows a response is left after truncation to max_length ",
                                                   options.max_length, "; raise it"));
  }
  dataset->content_hash_ = HashOf(dataset->rows_);
  dataset->sampler_ = {dataset->rows(), options.batch_size, options.shuffle, options.seed};
  return dataset;
}

template <typename RowType>
absl::StatusOr<StepPairs> PreferenceDataset<RowType>::RowsForStep(int64_t step) const {
  if (step < 0) return absl::InvalidArgumentError(absl::StrCat("no step ", step));
  StepRows rows = RowsOfStep(sampler_, step);
  return StepPairs{rows.epoch, rows.step_in_epoch, rows.ends_epoch, std::move(rows.rows)};
}

template class PreferenceDataset<PairRow>;
template class PreferenceDataset<LabelledRow>;

}  // namespace sluice::engine
