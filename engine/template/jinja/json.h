// JSON in and out, as Python's json module reads and writes it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

// Reads one JSON text. Keeps the order of keys (of duplicates the last value wins), 1 and 1.0 apart, and integers of
// any size. A lone surrogate escape becomes U+FFFD. kInvalidArgument "not valid JSON at byte N: ..." otherwise.
absl::StatusOr<Value> ParseJson(std::string_view text);

struct JsonOptions {
  bool ensure_ascii = false;
  std::optional<std::string> indent;          // one level's white space; none: all on one line
  std::optional<std::string> item_separator;  // default ", ", or "," with indent
  std::string key_separator = ": ";
  bool sort_keys = false;
  size_t max_bytes = size_t{16} << 20;
};

// json.dumps. kInvalidArgument for what has no JSON form (undefined, views, generators, objects, tuples as keys), and
// where the text would exceed max_bytes.
absl::StatusOr<std::string> ToJson(const Value& value, const JsonOptions& options = {});

}  // namespace sluice::engine::jinja
