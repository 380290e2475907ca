#include "engine/reward/exact_number.h"

#include <numeric>

namespace sluice::engine {
namespace {

constexpr size_t kMaxDigits = 18;  // below 2^63

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Takes a sign from the front of the text.
int64_t TakeSign(std::string_view* text) {
  if (text->empty() || (text->front() != '-' && text->front() != '+')) return 1;
  const int64_t sign = text->front() == '-' ? -1 : 1;
  text->remove_prefix(1);
  return sign;
}

ExactNumber Reduced(int64_t numerator, int64_t denominator) {
  const int64_t divisor = std::gcd(numerator, denominator);
  return {numerator / divisor, denominator / divisor};
}

// Digits with at most one point among them.
std::optional<ExactNumber> ParseDecimal(std::string_view text) {
  int64_t numerator = 0;
  int64_t denominator = 1;
  size_t digits = 0;
  bool has_point = false;
  for (char c : text) {
    if (c == '.' && !has_point) {
      has_point = true;
      continue;
    }
    if (!IsDigit(c) || ++digits > kMaxDigits) return std::nullopt;
    numerator = numerator * 10 + (c - '0');
    if (has_point) denominator *= 10;
  }
  if (digits == 0) return std::nullopt;
  return Reduced(numerator, denominator);
}

std::optional<int64_t> ParseWhole(std::string_view text) {
  const int64_t sign = TakeSign(&text);
  if (text.find('.') != std::string_view::npos) return std::nullopt;
  const std::optional<ExactNumber> number = ParseDecimal(text);
  if (!number.has_value()) return std::nullopt;
  return sign * number->numerator;
}

}  // namespace

std::optional<ExactNumber> ParseExactNumber(std::string_view text) {
  const int64_t sign = TakeSign(&text);
  constexpr std::string_view kFraction = "\\frac{";
  if (text.substr(0, kFraction.size()) != kFraction) {
    std::optional<ExactNumber> number = ParseDecimal(text);
    if (number.has_value()) number->numerator *= sign;
    return number;
  }
  text.remove_prefix(kFraction.size());
  const size_t middle = text.find("}{");
  if (middle == std::string_view::npos || text.back() != '}') return std::nullopt;
  const std::optional<int64_t> numerator = ParseWhole(text.substr(0, middle));
  const std::optional<int64_t> denominator = ParseWhole(text.substr(middle + 2, text.size() - middle - 3));
  if (!numerator.has_value() || !denominator.has_value() || *denominator == 0) return std::nullopt;
  const int64_t flip = *denominator < 0 ? -1 : 1;
  return Reduced(sign * flip * *numerator, flip * *denominator);
}

}  // namespace sluice::engine
