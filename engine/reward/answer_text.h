// Parts of a response that hold its answer. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::engine {

// The last `count` characters of a UTF-8 text (bytes that are no UTF-8 count one each).
std::string_view LastCharacters(std::string_view text, size_t count);

// What is in the braces of the last \boxed{...} or, where there is no \boxed, \fbox{...}; braces inside are balanced.
// `\boxed 7$` gives `7`. nullopt where there is none, or its braces do not close.
std::optional<std::string> LastBoxed(std::string_view text);

// All places of `from`, left to right. REQUIRES: `from` is not empty.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

// Without ASCII white space at both ends.
std::string_view StripSpace(std::string_view text);

}  // namespace sluice::engine
