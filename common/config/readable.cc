#include "common/config/readable.h"

#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice {

std::string FormatCount(int64_t value) {
  const std::string digits = absl::StrCat(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool group_begins = i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0;
    if (group_begins) text += ',';
    text += digits[i];
  }
  return text;
}

std::string FormatBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return absl::StrCat(bytes, " bytes");
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatRate(double value) { return absl::StrFormat("%.4g", value); }

std::string FormatOneDecimal(double value) {
  std::string text = absl::StrFormat("%.1f", value);
  if (absl::EndsWith(text, ".0")) text.resize(text.size() - 2);
  return text;
}

}  // namespace sluice
