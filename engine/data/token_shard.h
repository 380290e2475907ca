// A part of the tokenised cache: one Arrow IPC file with the kept rows of a range of the data set's rows.
//
// One record batch with the columns
//   row_id     int64              the row's number in the data set
//   input_ids  large_list<int32>  token ids
//   mask       large_list<uint8>  same lengths: 1 where the token is to be learned
// and the counts of ShardStats as schema metadata. All columns are without nulls. Equal contents give equal bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "engine/data/batch_plan.h"
#include "engine/data/row_encoder.h"

namespace sluice::engine {

// What became of the rows.
struct TokenStats {
  int64_t rows_read = 0;
  int64_t rows_kept = 0;
  int64_t rows_truncated = 0;  // longer than max_length; some of them may have been dropped afterwards
  int64_t rows_dropped = 0;    // without a token to score
  int64_t tokens = 0;          // of the rows kept
  int64_t scored_tokens = 0;   // those that add to the loss
  int64_t longest_row = 0;     // tokens

  void Add(const TokenStats& other);
  bool operator==(const TokenStats&) const = default;
};

// The rows of a shard while they are collected.
class TokenShardBuilder {
 public:
  // Takes a row that was truncated already; drops it where it has no token to score. REQUIRES: row ids ascend.
  void Add(int64_t row_id, const EncodedRow& row, bool was_truncated);

  const TokenStats& stats() const { return stats_; }
  // The file's bytes.
  absl::StatusOr<std::string> Serialize() const;

 private:
  TokenStats stats_;
  std::vector<int64_t> row_ids_;
  std::vector<int64_t> offsets_ = {0};
  std::vector<int32_t> ids_;
  std::vector<uint8_t> mask_;
};

// A shard on disk, mapped into memory. Immutable; threads may share it.
class TokenShard {
 public:
  // REQUIRES: the file's bytes were written by Serialize (the caller has compared a hash): offsets are not checked
  // again. kDataLoss where it is not such a file.
  static absl::StatusOr<std::unique_ptr<TokenShard>> Open(std::shared_ptr<const MappedFile> file);
  ~TokenShard();

  const TokenStats& stats() const { return stats_; }
  int64_t rows() const { return rows_; }
  // Valid as long as the shard. REQUIRES: 0 <= index < rows().
  TokenSpan row(int64_t index) const {
    const int64_t begin = offsets_[index];
    return {ids_ + begin, mask_ + begin, offsets_[index + 1] - begin, row_ids_[index]};
  }

 private:
  TokenShard() = default;

  struct Batch;  // keeps the memory behind the pointers
  std::unique_ptr<Batch> batch_;
  TokenStats stats_;
  int64_t rows_ = 0;
  const int64_t* row_ids_ = nullptr;
  const int64_t* offsets_ = nullptr;
  const int32_t* ids_ = nullptr;
  const uint8_t* mask_ = nullptr;
};

}  // namespace sluice::engine
