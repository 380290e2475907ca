// One file of rows. A row is a dict of its columns in the form that chat templates compute with (jinja::Value).
//
// Errors name the place: "train.jsonl:17: ..." (lines from 1, bytes in them from 0) or "train.parquet: row 3: ..."
// (rows from 0).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine {

using Row = jinja::Value;  // a dict: column name → value, in the file's order of columns

// Immutable after opening and safe to read from many threads.
class RowFile {
 public:
  virtual ~RowFile() = default;

  virtual int64_t rows() const = 0;

  // Appends rows begin..end-1. `columns`: the names that will be looked at, empty for all. It saves reading where the
  // format is columnar; others may be there all the same. A column that a row does not have is absent.
  // REQUIRES: 0 <= begin <= end <= rows().
  virtual absl::Status Read(int64_t begin, int64_t end, const std::vector<std::string>& columns,
                            std::vector<Row>* out) const = 0;

  // Names of the columns: of the file, or of its first row where each row has its own. Empty for no rows.
  virtual absl::StatusOr<std::vector<std::string>> Columns() const = 0;

  // "train.jsonl:17" or "train.parquet: row 3".
  virtual std::string Where(int64_t row) const = 0;

  // Hash of the file's bytes as they were when it was opened.
  virtual const std::string& content_hash() const = 0;
};

// One JSON object per line, UTF-8. Lines end at LF and at nothing else: CR before it is white space, U+2028 and its kin
// inside a text are text. A byte-order mark at the start, blank lines and a missing last LF are fine.
// Opening reads the file once, to find the lines and hash them; the objects are parsed by Read.
absl::StatusOr<std::unique_ptr<RowFile>> OpenJsonLinesFile(const std::string& path);

// Apache Parquet. A null inside a struct is an absent key, since one struct type must do for all rows; a null in a list
// and a null column of a row stay None, and empty lists and texts stay. Lists of any width, dictionaries and maps with
// text keys are read as what they hold. A type with no JSON form (timestamp, decimal, binary) is an error where a row
// is read that has such a value.
absl::StatusOr<std::unique_ptr<RowFile>> OpenParquetFile(const std::string& path);

}  // namespace sluice::engine
