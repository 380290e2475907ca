// The tests: {{ value is name(arguments) }}.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/jinja/runtime.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

using TestFunction = absl::StatusOr<bool> (*)(Runtime& runtime, const Value& value, const Arguments& arguments);

// jinja2's tests; null for an unknown name.
TestFunction FindTest(std::string_view name);

}  // namespace sluice::engine::jinja
