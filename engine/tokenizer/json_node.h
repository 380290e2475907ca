// A value inside tokenizer.json that knows its path, so that every complaint can name the place:
//   "pre_tokenizer.pretokenizers[1].behavior: not supported: \"Sideways\" (expected ...)".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::engine {

// Refers to the document, which must outlive it.
class JsonNode {
 public:
  JsonNode(const nlohmann::json* value, std::string path) : value_(value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }

  // InvalidArgument "<path>: <message>".
  absl::Status Error(std::string_view message) const;
  absl::Status NotSupported(std::string_view what) const;

  // InvalidArgument unless this is an object without keys other than `known`.
  absl::Status HasOnlyKeys(std::initializer_list<std::string_view> known) const;

  // The member `key`; a null node where it is absent. REQUIRES: this is an object.
  JsonNode Child(std::string_view key) const;
  absl::StatusOr<std::vector<JsonNode>> Elements() const;

  // Typed reads. The two-argument forms give `fallback` where the member is absent or null.
  absl::StatusOr<std::string> AsString() const;
  absl::StatusOr<std::string> String(std::string_view key) const { return Child(key).AsString(); }
  absl::StatusOr<bool> Bool(std::string_view key) const;
  absl::StatusOr<bool> Bool(std::string_view key, bool fallback) const;
  // An id or a count: a whole number in [0, 2^31).
  absl::StatusOr<int32_t> AsId() const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace sluice::engine
