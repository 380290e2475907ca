// Splitting and replacing, as Python's str methods do them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/jinja/runtime.h"

namespace sluice::engine::jinja {

// At most `maximum` splits (negative: no limit), counted from the right or the left; the pieces are in reading order.
// REQUIRES: !separator.empty().
std::vector<std::string> SplitAt(std::string_view text, std::string_view separator, int64_t maximum, bool from_right);

// At runs of white space; no empty pieces.
std::vector<std::string> SplitAtSpace(std::string_view text, int64_t maximum, bool from_right);

// At line ends: \n, \r\n, \r, \v, \f, U+001C to U+001E, U+0085, U+2028, U+2029.
std::vector<std::string> SplitLines(std::string_view text, bool keep_ends);

// The first `count` places of `from` (negative: all). An empty `from` is found between all characters.
absl::StatusOr<std::string> ReplaceText(const Runtime& runtime, std::string_view text, std::string_view from,
                                        std::string_view to, int64_t count);

// The text filled up to `width` code points; `side` is where the text goes: '<', '>', or the
// middle: '^' as format does it (the odd fill character to the right), 'c' as str.center (to the left in an odd width).
absl::StatusOr<std::string> Pad(const Runtime& runtime, std::string_view text, int64_t width, std::string_view fill,
                                char side);

}  // namespace sluice::engine::jinja
