// Filters that make or change numbers.
#include <charconv>
#include <cmath>
#include <cstdio>

#include "common/status_macros.h"
#include "engine/template/jinja/arguments.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/filter_tables.h"
#include "engine/template/jinja/operators.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// Python's int(text, base); nullopt for what is not a number.
std::optional<Value> ParseInteger(std::string_view text, int64_t base) {
  text = Strip(text, StripSide::kBoth);
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  if (base == 10 && !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos) {
    return Value::Integer(Join(is_negative ? "-" : "", text));
  }
  const bool has_prefix = text.size() > 2 && text[0] == '0' &&
                          ((base == 16 && (text[1] | 0x20) == 'x') || (base == 8 && (text[1] | 0x20) == 'o') ||
                           (base == 2 && (text[1] | 0x20) == 'b'));
  if (has_prefix) text.remove_prefix(2);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, static_cast<int>(base));
  if (error != std::errc() || end != text.data() + text.size() || text.starts_with('-')) return std::nullopt;
  return Value::Int(is_negative ? -number : number);
}

// Python's float(text); nullopt for what is not a number.
std::optional<double> ParseFloat(std::string_view text) {
  text = Strip(text, StripSide::kBoth);
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// int(number), towards zero; nullopt for infinities, NaN and what does not fit.
std::optional<Value> Truncate(double number) {
  if (!(std::abs(number) < 9.2e18)) return std::nullopt;
  return Value::Int(static_cast<int64_t>(number));
}

Result ToInt(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("int", arguments, {"default", "base"}));
  ASSIGN_OR_RETURN(const int64_t base, bound.Integer(1, 10));
  if (base < 2 || base > 36) return TemplateError("int() base must be >= 2 and <= 36");
  if (input.is_undefined()) return TemplateError(input.undefined_message());
  std::optional<Value> number;
  if (input.is_integer()) number = input;
  if (input.is_bool()) number = Value::Int(input.bool_value());
  if (input.kind() == Value::Kind::kFloat) number = Truncate(input.float_value());
  if (input.is_string()) {
    number = ParseInteger(input.string(), base);
    if (!number.has_value()) {
      const std::optional<double> parsed = ParseFloat(input.string());
      if (parsed.has_value()) number = Truncate(*parsed);
    }
  }
  return number.has_value() ? *number : bound.Get(0, Value::Int(0));
}

Result ToFloat(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("float", arguments, {"default"}));
  if (input.is_undefined()) return TemplateError(input.undefined_message());
  if (input.is_number()) return Value::Float(AsDouble(input));
  if (input.is_string()) {
    const std::optional<double> number = ParseFloat(input.string());
    if (number.has_value()) return Value::Float(*number);
  }
  return bound.Get(0, Value::Float(0.0));
}

Result Absolute(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("abs", arguments, {}));
  if (input.is_undefined()) return TemplateError(input.undefined_message());
  if (!input.is_number()) return TemplateError("bad operand type for abs(): '", TypeName(input), "'");
  if (input.kind() == Value::Kind::kFloat) return Value::Float(std::abs(input.float_value()));
  ASSIGN_OR_RETURN(const bool is_negative, IsLess(input, Value::Int(0)));
  return ApplyUnary(is_negative ? UnaryOperator::kNegate : UnaryOperator::kPositive, input);
}

// Python's round(): halves of the exact binary value to even, which is how printf rounds.
double RoundCommon(double number, int64_t precision) {
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(number / scale) * scale;
  }
  char buffer[800];
  const int size = std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), number);
  double rounded = number;
  std::from_chars(buffer, buffer + size, rounded);
  return rounded;
}

Result Round(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("round", arguments, {"precision", "method"}));
  ASSIGN_OR_RETURN(const int64_t precision, bound.Integer(0, 0));
  ASSIGN_OR_RETURN(const std::string method, bound.Text(1, "common"));
  if (precision < -300 || precision > 300) return TemplateError("round: precision must be within 300");
  if (input.is_undefined()) return TemplateError(input.undefined_message());
  if (!input.is_number()) return TemplateError("type ", TypeName(input), " doesn't define __round__ method");
  const double number = AsDouble(input);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value::Float(std::ceil(number * scale) / scale);
  if (method == "floor") return Value::Float(std::floor(number * scale) / scale);
  if (method != "common") return TemplateError("method must be common, ceil or floor");
  if (input.kind() == Value::Kind::kFloat) return Value::Float(RoundCommon(number, precision));
  if (precision >= 0) return ApplyUnary(UnaryOperator::kPositive, input);
  return Value::Int(static_cast<int64_t>(RoundCommon(number, precision)));
}

constexpr NamedFilter kFilters[] = {
    {"int", ToInt},
    {"float", ToFloat},
    {"abs", Absolute},
    {"round", Round},
};

}  // namespace

std::span<const NamedFilter> NumberFilters() { return kFilters; }

}  // namespace sluice::engine::jinja
