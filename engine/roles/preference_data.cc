#include "engine/roles/preference_data.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"

namespace sluice::engine {
namespace {

SequenceGroup GroupOf(const PairRow& row) { return {{&row.pair.chosen, &row.pair.rejected}, row.sample_id}; }
SequenceGroup GroupOf(const LabelledRow& row) { return {{&row.completion.row}, row.sample_id}; }

}  // namespace

absl::StatusOr<PreferenceData> PreferenceData::Open(bool pairs, const PreferenceDatasetOptions& options,
                                                    const ChatRowEncoder& encoder) {
  if (pairs) {
    ASSIGN_OR_RETURN(std::unique_ptr<PairDataset> rows, PairDataset::Open(options, encoder));
    return PreferenceData(std::move(rows));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<LabelledDataset> rows, LabelledDataset::Open(options, encoder));
  return PreferenceData(std::move(rows));
}

int64_t PreferenceData::rows() const {
  return std::visit([](const auto& rows) { return rows->rows(); }, rows_);
}

int64_t PreferenceData::steps_per_epoch() const {
  return std::visit([](const auto& rows) { return rows->steps_per_epoch(); }, rows_);
}

const PreferenceStats& PreferenceData::stats() const {
  return std::visit([](const auto& rows) -> const PreferenceStats& { return rows->stats(); }, rows_);
}

const std::string& PreferenceData::content_hash() const {
  return std::visit([](const auto& rows) -> const std::string& { return rows->content_hash(); }, rows_);
}

absl::StatusOr<StepPairs> PreferenceData::RowsForStep(int64_t step) const {
  return std::visit([&](const auto& rows) { return rows->RowsForStep(step); }, rows_);
}

std::vector<SequenceGroup> PreferenceData::GroupsOf(absl::Span<const int64_t> rows) const {
  std::vector<SequenceGroup> groups;
  groups.reserve(rows.size());
  std::visit(
      [&](const auto& dataset) {
        for (const int64_t row : rows) groups.push_back(GroupOf(dataset->row(row)));
      },
      rows_);
  return groups;
}

double PreferenceData::margin(int64_t row) const {
  return std::get<std::unique_ptr<PairDataset>>(rows_)->row(row).margin;
}

const LabelledRow& PreferenceData::labelled(int64_t row) const {
  return std::get<std::unique_ptr<LabelledDataset>>(rows_)->row(row);
}

std::vector<EncodedRow> MismatchedRows(const PreferenceData& data, absl::Span<const int64_t> rows, int64_t max_length) {
  std::vector<EncodedRow> mismatched;
  if (rows.size() < 2) return mismatched;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t before = rows[(i + rows.size() - 1) % rows.size()];
    EncodedRow row = WithResponseOf(data.labelled(rows[i]).completion, data.labelled(before).completion);
    const size_t tokens = std::min(row.ids.size(), static_cast<size_t>(max_length));
    row.ids.resize(tokens);
    row.mask.resize(tokens);
    mismatched.push_back(std::move(row));
  }
  return mismatched;
}

}  // namespace sluice::engine
