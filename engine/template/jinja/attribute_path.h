// The `attribute` arguments of filters: "function.name", "0", 0.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/jinja/runtime.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

// A look-up through items, step by step, as jinja2's make_attrgetter does it.
class AttributePath {
 public:
  // `attribute`: a string with dots, an integer, or None for the item itself.
  static absl::StatusOr<AttributePath> Parse(const Value& attribute);
  // Several paths with commas between them, for sort.
  static absl::StatusOr<std::vector<AttributePath>> ParseMany(const Value& attribute);

  // `otherwise` replaces what is undefined on the way.
  absl::StatusOr<Value> Get(const Value& item, const std::optional<Value>& otherwise = std::nullopt) const;

 private:
  std::vector<Value> steps_;
};

// Strings in lower case, for comparisons that ignore it; all else as it is.
Value IgnoreCase(const Value& value);

}  // namespace sluice::engine::jinja
