#include "engine/template/jinja/format_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/python_text.h"
#include "engine/template/jinja/string_search.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

constexpr std::string_view kIntegerTypes = "dioxXbc";
constexpr std::string_view kFloatTypes = "fFeEgG%";
constexpr int64_t kMaxPrecision = 400;

std::string InsertThousands(std::string digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string IntegerDigits(uint64_t number, char type) {
  const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  static constexpr std::string_view kLower = "0123456789abcdef";
  static constexpr std::string_view kUpper = "0123456789ABCDEF";
  std::string digits;
  do {
    digits.push_back((type == 'X' ? kUpper : kLower)[number % base]);
    number /= base;
  } while (number > 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

// Sign and digits of a number, apart so that padding can go between.
struct NumberText {
  std::string sign;
  std::string digits;
};

absl::StatusOr<NumberText> IntegerText(const Value& value, const FormatSpec& spec) {
  NumberText text;
  if (value.kind() == Value::Kind::kBigInt) {
    if (spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b') {
      return TemplateError("integers of more than 64 bits are formatted as decimals only");
    }
    text.digits = value.big_int_digits();
    if (text.digits[0] == '-') {
      text.sign = "-";
      text.digits.erase(0, 1);
    }
  } else {
    const int64_t number = value.is_bool() ? int64_t{value.bool_value()} : value.int_value();
    if (number < 0) text.sign = "-";
    text.digits =
        IntegerDigits(number < 0 ? ~static_cast<uint64_t>(number) + 1 : static_cast<uint64_t>(number), spec.type);
  }
  if (spec.alternate && (spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b')) {
    text.sign += std::string("0") + spec.type;
  }
  if (spec.thousands) text.digits = InsertThousands(text.digits);
  return text;
}

NumberText FloatText(double number, const FormatSpec& spec) {
  NumberText text;
  if (std::signbit(number) && !std::isnan(number)) text.sign = "-";
  const double magnitude = std::abs(number);
  if (!std::isfinite(magnitude)) {
    text.digits = std::isnan(magnitude) ? "nan" : "inf";
    return text;
  }
  if (spec.type == '\0' && spec.precision < 0) {
    text.digits = FloatRepr(magnitude);
  } else {
    const char conversion = spec.type == '%' ? 'f' : spec.type == '\0' ? 'g' : spec.type;
    const char format[] = {'%', '.', '*', conversion, '\0'};
    const int precision =
        static_cast<int>(std::clamp<int64_t>(spec.precision < 0 ? 6 : spec.precision, 0, kMaxPrecision));
    char buffer[800];
    std::snprintf(buffer, sizeof(buffer), format, precision, spec.type == '%' ? magnitude * 100 : magnitude);
    text.digits = buffer;
    if (spec.type == '%') text.digits.push_back('%');
  }
  if (spec.thousands) text.digits = InsertThousands(text.digits);
  return text;
}

absl::StatusOr<std::string> PadNumber(const Runtime& runtime, NumberText text, const FormatSpec& spec) {
  if (text.sign.empty() || text.sign[0] == '0') {
    if (spec.sign == '+') text.sign.insert(0, "+");
    if (spec.sign == ' ') text.sign.insert(0, " ");
  }
  if (spec.align == '=') {
    const int64_t rest = spec.width - static_cast<int64_t>(text.sign.size());
    ASSIGN_OR_RETURN(const std::string digits, Pad(runtime, text.digits, rest, spec.fill, '>'));
    return text.sign + digits;
  }
  return Pad(runtime, text.sign + text.digits, spec.width, spec.fill, spec.align == '\0' ? '>' : spec.align);
}

}  // namespace

absl::StatusOr<std::string> FormatField(const Runtime& runtime, const Value& value, const FormatSpec& spec) {
  const bool wants_float = spec.type != '\0' && kFloatTypes.find(spec.type) != std::string_view::npos;
  const bool wants_integer = spec.type != '\0' && kIntegerTypes.find(spec.type) != std::string_view::npos;
  if (wants_float || (spec.type == '\0' && value.kind() == Value::Kind::kFloat)) {
    if (!value.is_number()) return TemplateError("a number is required, not ", TypeName(value));
    return PadNumber(runtime, FloatText(AsDouble(value), spec), spec);
  }
  if (wants_integer || (spec.type == '\0' && value.is_integer())) {
    if (!value.is_integer() && !value.is_bool()) return TemplateError("an integer is required, not ", TypeName(value));
    ASSIGN_OR_RETURN(NumberText text, IntegerText(value, spec));
    return PadNumber(runtime, std::move(text), spec);
  }
  if (spec.type != '\0' && spec.type != 's') {
    return TemplateError("unknown format code '", std::string(1, spec.type), "'");
  }
  ASSIGN_OR_RETURN(std::string text, runtime.ToText(value));
  if (spec.precision >= 0 && static_cast<int64_t>(CodePointCount(text)) > spec.precision) {
    text.resize(CodePointStarts(text)[static_cast<size_t>(spec.precision)]);
  }
  return Pad(runtime, text, spec.width, spec.fill, spec.align == '\0' || spec.align == '=' ? '<' : spec.align);
}

}  // namespace sluice::engine::jinja
