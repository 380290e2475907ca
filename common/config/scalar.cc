#include "common/config/scalar.h"

#include <charconv>
#include <cmath>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/suggest.h"

namespace sluice {
namespace {

absl::Status Wrong(const std::string& expected, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", expected, ", got ", Quoted(text)));
}

size_t SkipDigits(const std::string& text, size_t at) {
  while (at < text.size() && absl::ascii_isdigit(text[at])) ++at;
  return at;
}

size_t SkipSign(const std::string& text, size_t at) {
  return at < text.size() && (text[at] == '+' || text[at] == '-') ? at + 1 : at;
}

// sign? (digits (. digits?)? | . digits) ((e|E) sign? digits)?
bool IsDecimal(const std::string& text) {
  size_t at = SkipSign(text, 0);
  const size_t whole = at;
  at = SkipDigits(text, at);
  size_t digits = at - whole;
  if (at < text.size() && text[at] == '.') {
    const size_t fraction = ++at;
    at = SkipDigits(text, at);
    digits += at - fraction;
  }
  if (digits == 0) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    const size_t exponent = SkipSign(text, at + 1);
    at = SkipDigits(text, exponent);
    if (at == exponent) return false;
  }
  return at == text.size();
}

bool HasNonZeroMantissa(const std::string& text) {
  const size_t end = text.find_first_of("eE");
  return text.substr(0, end).find_first_of("123456789") != std::string::npos;
}

}  // namespace

absl::StatusOr<int64_t> ParseInteger(const std::string& text) {
  const size_t begin = SkipSign(text, 0);
  if (begin == text.size() || SkipDigits(text, begin) != text.size()) return Wrong("a whole number", text);
  const char* first = text.data() + (text[0] == '+' ? 1 : 0);
  int64_t value = 0;
  const auto result = std::from_chars(first, text.data() + text.size(), value);
  if (result.ec != std::errc()) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " does not fit into 64 bits"));
  }
  return value;
}

absl::StatusOr<double> ParseNumber(const std::string& text) {
  if (!IsDecimal(text)) return Wrong("a number", text);
  const char* first = text.data() + (text[0] == '+' ? 1 : 0);
  double value = 0;
  const auto result = std::from_chars(first, text.data() + text.size(), value);
  if (result.ec != std::errc() || !std::isfinite(value) || (value == 0 && HasNonZeroMantissa(text))) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is beyond the range of a double"));
  }
  return value;
}

absl::StatusOr<bool> ParseTruth(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower == "true" || lower == "yes" || lower == "on") return true;
  if (lower == "false" || lower == "no" || lower == "off") return false;
  return Wrong("true or false", text);
}

absl::StatusOr<std::string> ParseChoice(const std::string& text, const std::vector<std::string>& choices) {
  if (choices.empty()) return text;
  for (const std::string& choice : choices) {
    if (absl::EqualsIgnoreCase(choice, text)) return choice;
  }
  std::string message = absl::StrCat("expected one of ", absl::StrJoin(choices, ", "), ", got ", Quoted(text));
  if (const auto nearest = Nearest(text, choices)) absl::StrAppend(&message, " (did you mean ", *nearest, "?)");
  return absl::InvalidArgumentError(message);
}

absl::Status CheckBounds(double value, const v1::KeyOptions& options) {
  std::string rule;
  if (options.has_min() && value < options.min()) rule = absl::StrCat("at least ", FormatNumber(options.min()));
  if (options.has_max() && value > options.max()) rule = absl::StrCat("at most ", FormatNumber(options.max()));
  if (options.has_above() && !(value > options.above())) rule = absl::StrCat("above ", FormatNumber(options.above()));
  if (options.has_below() && !(value < options.below())) rule = absl::StrCat("below ", FormatNumber(options.below()));
  if (!std::isfinite(value)) rule = "finite";
  if (rule.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("must be ", rule, ", is ", FormatNumber(value)));
}

std::string FormatNumber(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

std::string Quoted(const std::string& text) {
  constexpr size_t kLongest = 120;
  std::string out = "\"";
  for (const unsigned char c : text.substr(0, kLongest)) {
    if (c == '"' || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7f) {
      absl::StrAppend(&out, "\\x", absl::Hex(c, absl::kZeroPad2));
    } else {
      out += static_cast<char>(c);
    }
  }
  out += '"';
  if (text.size() > kLongest) out += "...";
  return out;
}

}  // namespace sluice
