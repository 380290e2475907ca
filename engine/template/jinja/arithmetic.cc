// Binary and unary operators.
#include <cmath>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/html.h"
#include "engine/template/jinja/operators.h"
#include "engine/template/jinja/python_format.h"

namespace sluice::engine::jinja {
namespace {

std::string_view Symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "**";
  }
  return "?";
}

absl::Status TooLarge() { return TemplateError("arithmetic on integers of more than 64 bits is not supported"); }

// Rounds towards minus infinity, as Python does.
int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

double FloorModulo(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder == 0.0) return std::copysign(0.0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return TemplateError("0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::Int(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Int(exponent % 2 == 0 ? 1 : -1);
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return TooLarge();
  }
  return Value::Int(result);
}

absl::StatusOr<Value> IntegerBinary(BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return TooLarge();
      return Value::Int(result);
    case BinaryOperator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return TooLarge();
      return Value::Int(result);
    case BinaryOperator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return TooLarge();
      return Value::Int(result);
    case BinaryOperator::kPower:
      return IntegerPower(a, b);
    default:
      break;
  }
  if (b == 0) return TemplateError("division by zero");
  if (op == BinaryOperator::kDivide) return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {  // the smallest integer has no counterpart
    if (op == BinaryOperator::kModulo) return Value::Int(0);
    return IntegerBinary(BinaryOperator::kSubtract, 0, a);
  }
  if (op == BinaryOperator::kFloorDivide) return Value::Int(FloorDivide(a, b));
  return Value::Int(a - b * FloorDivide(a, b));
}

absl::StatusOr<Value> FloatBinary(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value::Float(a + b);
    case BinaryOperator::kSubtract:
      return Value::Float(a - b);
    case BinaryOperator::kMultiply:
      return Value::Float(a * b);
    case BinaryOperator::kPower:
      if (a == 0.0 && b < 0) return TemplateError("0.0 cannot be raised to a negative power");
      return Value::Float(std::pow(a, b));
    default:
      break;
  }
  if (b == 0.0) return TemplateError("float division by zero");
  if (op == BinaryOperator::kDivide) return Value::Float(a / b);
  if (op == BinaryOperator::kModulo) return Value::Float(FloorModulo(a, b));
  return Value::Float(std::floor((a - FloorModulo(a, b)) / b + 0.5));
}

absl::StatusOr<Value> NumberBinary(BinaryOperator op, const Value& left, const Value& right) {
  if (left.kind() == Value::Kind::kFloat || right.kind() == Value::Kind::kFloat) {
    return FloatBinary(op, AsDouble(left), AsDouble(right));
  }
  if (left.kind() == Value::Kind::kBigInt || right.kind() == Value::Kind::kBigInt) return TooLarge();
  const auto small = [](const Value& value) {
    return value.is_bool() ? int64_t{value.bool_value()} : value.int_value();
  };
  return IntegerBinary(op, small(left), small(right));
}

absl::StatusOr<Value> AddStrings(Runtime& runtime, const Value& left, const Value& right) {
  RETURN_IF_ERROR(runtime.CheckBytes(left.string().size() + right.string().size()));
  if (!left.is_safe_string() && !right.is_safe_string()) return Value::String(left.string() + right.string());
  const auto escaped = [](const Value& value) {
    return value.is_safe_string() ? value.string() : EscapeHtml(value.string());
  };
  return Value::SafeString(escaped(left) + escaped(right));
}

absl::StatusOr<Value> AddLists(Runtime& runtime, const Value& left, const Value& right) {
  RETURN_IF_ERROR(runtime.CheckItems(left.items().size() + right.items().size()));
  std::vector<Value> items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return Value::List(std::move(items), left.sequence().kind);
}

// A string, list or tuple, `count` times.
absl::StatusOr<Value> Repeat(Runtime& runtime, const Value& value, int64_t count) {
  const uint64_t times = count < 0 ? 0 : static_cast<uint64_t>(count);
  const uint64_t size = value.is_string() ? value.string().size() : value.items().size();
  if (size != 0 && times > (uint64_t{1} << 40)) return runtime.CheckBytes(std::string::npos);
  if (value.is_string()) {
    RETURN_IF_ERROR(runtime.CheckBytes(size * times));
    std::string text;
    text.reserve(size * times);
    for (uint64_t i = 0; size != 0 && i < times; ++i) text.append(value.string());
    return value.is_safe_string() ? Value::SafeString(std::move(text)) : Value::String(std::move(text));
  }
  RETURN_IF_ERROR(runtime.CheckItems(size * times));
  std::vector<Value> items;
  for (uint64_t i = 0; size != 0 && i < times; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return Value::List(std::move(items), value.sequence().kind);
}

bool IsConcatenable(const Value& value) {
  return value.is_string() || (value.is_list() && value.sequence().kind <= SequenceKind::kTuple);
}

bool IsCount(const Value& value) { return value.kind() == Value::Kind::kInt || value.is_bool(); }

}  // namespace

absl::StatusOr<Value> ApplyBinary(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return NumberBinary(op, left, right);
  if (op == BinaryOperator::kModulo && left.is_string()) return FormatPercent(runtime, left, right);
  if (left.is_undefined()) return TemplateError(left.undefined_message());
  if (right.is_undefined()) return TemplateError(right.undefined_message());
  if (op == BinaryOperator::kAdd) {
    if (left.is_string() && right.is_string()) return AddStrings(runtime, left, right);
    if (IsConcatenable(left) && IsConcatenable(right) && left.is_list() && right.is_list() &&
        left.sequence().kind == right.sequence().kind) {
      return AddLists(runtime, left, right);
    }
  }
  if (op == BinaryOperator::kMultiply) {
    const auto count = [](const Value& value) {
      return value.is_bool() ? int64_t{value.bool_value()} : value.int_value();
    };
    if (IsConcatenable(left) && IsCount(right)) return Repeat(runtime, left, count(right));
    if (IsCount(left) && IsConcatenable(right)) return Repeat(runtime, right, count(left));
  }
  return TemplateError("unsupported operand type(s) for ", Symbol(op), ": '", TypeName(left), "' and '",
                       TypeName(right), "'");
}

absl::StatusOr<Value> ApplyUnary(UnaryOperator op, const Value& operand) {
  if (op == UnaryOperator::kNot) return Value::Bool(!IsTrue(operand));
  if (operand.is_undefined()) return TemplateError(operand.undefined_message());
  if (!operand.is_number()) {
    return TemplateError("bad operand type for unary ", op == UnaryOperator::kNegate ? "-" : "+", ": '",
                         TypeName(operand), "'");
  }
  if (operand.kind() == Value::Kind::kFloat) {
    return Value::Float(op == UnaryOperator::kNegate ? -operand.float_value() : operand.float_value());
  }
  if (operand.kind() == Value::Kind::kBigInt) {
    if (op == UnaryOperator::kPositive) return operand;
    const std::string& digits = operand.big_int_digits();
    return Value::Integer(digits[0] == '-' ? digits.substr(1) : "-" + digits);
  }
  const int64_t number = operand.is_bool() ? int64_t{operand.bool_value()} : operand.int_value();
  if (op == UnaryOperator::kPositive) return Value::Int(number);
  return IntegerBinary(BinaryOperator::kSubtract, 0, number);
}

}  // namespace sluice::engine::jinja
