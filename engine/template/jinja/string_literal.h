// String literals of a template.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice::engine::jinja {

// Resolves Python's escapes in the text between the quotes: \n, \t, \', \x41, \u00e9, \U0001f600, octal, and a line
// break that vanishes. An unknown escape keeps its backslash. kInvalidArgument for digits that are missing.
absl::StatusOr<std::string> UnescapeStringLiteral(std::string_view text);

}  // namespace sluice::engine::jinja
