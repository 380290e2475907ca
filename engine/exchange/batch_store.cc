#include "engine/exchange/batch_store.h"

#include <arrow/api.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ids.h"

namespace sluice::engine {
namespace {

// Rows of one prompt lie together: few slices, each without a copy.
arrow::Result<std::shared_ptr<arrow::RecordBatch>> RowsOf(const std::shared_ptr<arrow::RecordBatch>& batch,
                                                          const RowChoice& choice) {
  const auto column = batch->GetColumnByName(kPlaceColumn);
  if (column == nullptr || column->type_id() != arrow::Type::INT64) {
    return arrow::Status::Invalid("the batch has no column of places");
  }
  const auto& places = static_cast<const arrow::Int64Array&>(*column);
  const auto chosen = [&](int64_t row) {
    const int64_t place = places.Value(row);
    if (choice.parts > 0) return place % choice.parts == choice.part;
    return std::binary_search(choice.places.begin(), choice.places.end(), place);
  };
  arrow::RecordBatchVector slices;
  for (int64_t row = 0; row < batch->num_rows();) {
    int64_t end = row;
    while (end < batch->num_rows() && chosen(end)) ++end;
    if (end > row) slices.push_back(batch->Slice(row, end - row));
    row = end > row ? end : row + 1;
  }
  if (slices.empty()) return batch->Slice(0, 0);
  return arrow::ConcatenateRecordBatches(slices);
}

}  // namespace

std::string BatchStore::Keep(int64_t step, std::shared_ptr<arrow::RecordBatch> batch, int readers) {
  absl::MutexLock lock(&mutex_);
  DropExpired();
  std::string id = NewUniqueId("batch-");
  kept_[id] = {step, std::move(batch), readers, clock_->Now() + lease_};
  return id;
}

absl::StatusOr<std::shared_ptr<arrow::RecordBatch>> BatchStore::Take(const std::string& id, const RowChoice& choice) {
  if (choice.parts < 0 || choice.part < 0 || (choice.parts > 0 && choice.part >= choice.parts)) {
    return absl::InvalidArgumentError(absl::StrCat("there is no part ", choice.part, " of ", choice.parts));
  }
  std::shared_ptr<arrow::RecordBatch> batch;
  {
    absl::MutexLock lock(&mutex_);
    DropExpired();
    const auto found = kept_.find(id);
    if (found == kept_.end()) {
      return absl::NotFoundError("the batch is not kept any more: every reader had it, or its lease is over");
    }
    batch = found->second.batch;
    if (--found->second.readers == 0) kept_.erase(found);
  }
  auto rows = RowsOf(batch, choice);
  if (!rows.ok()) return absl::InternalError(rows.status().ToString());
  return *std::move(rows);
}

void BatchStore::DropBefore(int64_t step) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(kept_, [step](const auto& entry) { return entry.second.step < step; });
}

void BatchStore::DropExpired() {
  const absl::Time now = clock_->Now();
  std::erase_if(kept_, [now](const auto& entry) { return entry.second.end <= now; });
}

int64_t BatchStore::size() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(kept_.size());
}

}  // namespace sluice::engine
