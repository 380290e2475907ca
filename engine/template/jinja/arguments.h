// Binds a call's arguments to a built-in function's parameters, as Python does.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

class BoundArguments {
 public:
  explicit BoundArguments(std::vector<std::optional<Value>> values) : values_(std::move(values)) {}

  bool has(size_t parameter) const { return values_[parameter].has_value(); }
  // The argument, or `otherwise` where the call gives none.
  Value Get(size_t parameter, Value otherwise) const {
    return has(parameter) ? *values_[parameter] : std::move(otherwise);
  }
  // REQUIRES: has(parameter).
  const Value& operator[](size_t parameter) const { return *values_[parameter]; }

  // Typed reads with a default; kInvalidArgument for another type.
  absl::StatusOr<int64_t> Integer(size_t parameter, int64_t otherwise) const;
  bool Truth(size_t parameter, bool otherwise) const;
  absl::StatusOr<std::string> Text(size_t parameter, std::string otherwise) const;

 private:
  std::vector<std::optional<Value>> values_;
};

// The first `required` parameters must be given. kInvalidArgument for too many, unknown, repeated or missing arguments.
absl::StatusOr<BoundArguments> Bind(std::string_view function, const Arguments& arguments,
                                    std::initializer_list<std::string_view> parameters, size_t required = 0);

}  // namespace sluice::engine::jinja
