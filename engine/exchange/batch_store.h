// Record batches that a stage keeps for engines of other pools, until each of them has had its part.
//
// A batch is under a lease: when that is over, nobody will come for it, and it goes. It also goes with its step. So
// what a lost reader leaves behind does not stay. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace arrow {
class RecordBatch;
}

namespace sluice::engine {

// The int64 column by which rows are dealt to readers.
inline constexpr char kPlaceColumn[] = "place";

// Which rows of a batch a reader wants.
struct RowChoice {
  int part = 0;  // those whose place, modulo `parts`, is this
  int parts = 1;
  std::vector<int64_t> places;  // ascending; where `parts` is 0: those of these places
};

class BatchStore {
 public:
  // REQUIRES: clock outlives the store; lease > 0.
  BatchStore(const Clock* clock, absl::Duration lease) : clock_(clock), lease_(lease) {}

  // Keeps the batch for `readers` calls of Take, and returns its id, which cannot be guessed. REQUIRES: a column of
  // places; readers >= 1.
  std::string Keep(int64_t step, std::shared_ptr<arrow::RecordBatch> batch, int readers);

  // The rows that are chosen, in their order. The batch goes with its last reader.
  // NotFound: there is no such batch any more. InvalidArgument: neither 0 <= part < parts holds nor is parts 0.
  absl::StatusOr<std::shared_ptr<arrow::RecordBatch>> Take(const std::string& id, const RowChoice& choice);

  // Batches of steps before this one go.
  void DropBefore(int64_t step);

  // Batches that are kept.
  int64_t size() const;

 private:
  struct Kept {
    int64_t step = 0;
    std::shared_ptr<arrow::RecordBatch> batch;
    int readers = 0;  // that have not come yet
    absl::Time end;   // of the lease
  };

  void DropExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  const absl::Duration lease_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Kept> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::engine
