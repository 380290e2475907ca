// The value of one YAML scalar, decided by the type of its key and never by how the text looks: `on` is true for a
// switch and the text "on" for a name, `1e-5` is a number, `010` is ten.
//
// Errors are InvalidArgument with a message that shows the text ("expected a whole number, got \"8.5\"").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sluice/v1/config_options.pb.h"

namespace sluice {

// Decimal digits with an optional sign. Refused: fractions, exponents, separators, other bases, anything beyond int64.
absl::StatusOr<int64_t> ParseInteger(const std::string& text);

// Decimal number, `5`, `.5`, `1.e-5`, `1E-5`. Refused: infinities, NaN, overflow, and underflow to zero.
absl::StatusOr<double> ParseNumber(const std::string& text);

// true, yes, on, false, no, off in any case.
absl::StatusOr<bool> ParseTruth(const std::string& text);

// The choice equal to `text` but for case. With no choices: `text` itself.
absl::StatusOr<std::string> ParseChoice(const std::string& text, const std::vector<std::string>& choices);

// OK where `value` is within the key's bounds ("must be at least 1, is 0").
absl::Status CheckBounds(double value, const v1::KeyOptions& options);

// The shortest text that reads back as the same number: 1e-05, 0.1, 30.
std::string FormatNumber(double value);

// In double quotes, with control characters and bad UTF-8 escaped and long texts cut: for messages.
std::string Quoted(const std::string& text);

}  // namespace sluice
