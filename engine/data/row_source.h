// The rows of a data set: those of its files, one after another.
//
//   ASSIGN_OR_RETURN(auto source, RowSource::Open({"data/train-*.parquet", "extra.jsonl"}));
//   ASSIGN_OR_RETURN(std::vector<Row> rows, source->Read(0, 100));
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/row_file.h"

namespace sluice::engine {

// The files that `patterns` name, in the order given; a glob's matches in byte order. A name that exists is taken as it
// is, even with glob characters in it. kNotFound names the pattern that matches nothing.
absl::StatusOr<std::vector<std::string>> ExpandGlobs(const std::vector<std::string>& patterns);

// Immutable and safe to read from many threads.
class RowSource {
 public:
  // Opens .jsonl (also .ndjson and .json) and .parquet files. `max_rows` >= 0 keeps only the first so many rows.
  // kInvalidArgument: a file of another kind, or no row in any of them (the message names the files).
  static absl::StatusOr<std::unique_ptr<RowSource>> Open(const std::vector<std::string>& patterns,
                                                         int64_t max_rows = -1);

  int64_t rows() const { return rows_; }

  // Rows begin..end-1; `columns` as in RowFile::Read. REQUIRES: 0 <= begin <= end <= rows().
  absl::StatusOr<std::vector<Row>> Read(int64_t begin, int64_t end, const std::vector<std::string>& columns = {}) const;

  // Names of the columns of the first row's file.
  absl::StatusOr<std::vector<std::string>> Columns() const;

  // The place of a row for messages: "train.jsonl:17" or "train.parquet: row 3".
  std::string Where(int64_t row) const;

  // Hash of what all files hold, in their order, and of max_rows. Names and dates are not part of it.
  std::string ContentHash() const;

 private:
  RowSource() = default;
  size_t FileOf(int64_t row) const;

  std::vector<std::unique_ptr<RowFile>> files_;  // those with rows
  std::vector<int64_t> starts_;                  // [files + 1] first row of each file, and the number of all rows
  int64_t rows_ = 0;
};

}  // namespace sluice::engine
