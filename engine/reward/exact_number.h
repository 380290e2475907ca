// Numbers as fractions of whole numbers, so that 0.5 equals 1/2 without rounding. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::engine {

// In lowest terms, the denominator above 0.
struct ExactNumber {
  int64_t numerator = 0;
  int64_t denominator = 1;

  friend bool operator==(const ExactNumber&, const ExactNumber&) = default;
};

// Reads `-12`, `+.5`, `3.`, `-\frac{1}{2}` and `\frac{-1}{2}` with whole numbers inside. nullopt for anything else, a
// denominator of 0, and numbers of more than 18 digits.
std::optional<ExactNumber> ParseExactNumber(std::string_view text);

}  // namespace sluice::engine
