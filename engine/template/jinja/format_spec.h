// One formatted field, as both of Python's formatting ways write it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/template/jinja/runtime.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '=' (between sign and digits), or '\0': by the type
  char sign = '-';    // '-': only minus; '+': both; ' ': a space for plus
  bool alternate = false;
  bool thousands = false;
  int64_t width = 0;
  int64_t precision = -1;  // -1: the type's default
  char type = '\0';        // '\0': by the value
};

// kInvalidArgument where the type does not go with the value.
absl::StatusOr<std::string> FormatField(const Runtime& runtime, const Value& value, const FormatSpec& spec);

}  // namespace sluice::engine::jinja
