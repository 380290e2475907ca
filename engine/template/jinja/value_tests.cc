#include "engine/template/jinja/value_tests.h"

#include "common/status_macros.h"
#include "engine/template/jinja/arguments.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/filters.h"
#include "engine/template/jinja/operators.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

using Result = absl::StatusOr<bool>;

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsTrueItself(const Value& value) { return value.is_bool() && value.bool_value(); }
bool IsFalseItself(const Value& value) { return value.is_bool() && !value.bool_value(); }
bool IsInteger(const Value& value) { return value.is_integer(); }
bool IsFloat(const Value& value) { return value.kind() == Value::Kind::kFloat; }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is_string(); }
bool IsMapping(const Value& value) { return value.is_dict(); }
bool IsCallable(const Value& value) { return value.is_object() && value.object().IsCallable(); }
bool IsEscaped(const Value& value) { return value.is_safe_string(); }

// What has a length and subscripts: jinja2 does not look further.
bool IsSequence(const Value& value) {
  if (value.is_list()) return value.sequence().kind <= SequenceKind::kRange;
  return value.is_string() || value.is_dict() || value.is_undefined();
}

bool IsIterable(const Value& value) {
  return value.is_list() || value.is_string() || value.is_dict() || value.is_undefined();
}

template <bool (*kIs)(const Value&)>
Result Is(Runtime& runtime, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("test", arguments, {}));
  return kIs(value);
}

template <ComparisonOperator kOperator>
Result Compares(Runtime& runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("test", arguments, {"other"}, 1));
  return Compare(runtime, kOperator, value, bound[0]);
}

// Python's `is`. Scalars are the same where they are equal and of one type: Python keeps one object of most of them.
Result SameAs(Runtime& runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("sameas", arguments, {"other"}, 1));
  const Value& other = bound[0];
  if (value.kind() != other.kind()) return false;
  if (value.is_list()) return &value.sequence() == &other.sequence();
  if (value.is_dict()) return &value.dict() == &other.dict();
  return runtime.Equal(value, other);
}

Result DivisibleBy(Runtime& runtime, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("divisibleby", arguments, {"num"}, 1));
  if (value.is_string()) return TemplateError("divisibleby: a number is required, not str");
  ASSIGN_OR_RETURN(const Value remainder, ApplyBinary(runtime, BinaryOperator::kModulo, value, bound[0]));
  return runtime.Equal(remainder, Value::Int(0));
}

template <int kRemainder>
Result HasParity(Runtime& runtime, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("test", arguments, {}));
  if (value.is_string()) return TemplateError("even and odd: a number is required, not str");
  ASSIGN_OR_RETURN(const Value remainder, ApplyBinary(runtime, BinaryOperator::kModulo, value, Value::Int(2)));
  return runtime.Equal(remainder, Value::Int(kRemainder));
}

// str(value).isupper() or islower().
template <bool (*kWanted)(int32_t), bool (*kOther)(int32_t)>
Result HasCase(Runtime& runtime, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("test", arguments, {}));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(value));
  bool found = false;
  for (size_t i = 0; i < text.size();) {
    const int32_t c = NextCodePoint(text, &i);
    if (kOther(c)) return false;
    found |= kWanted(c);
  }
  return found;
}

template <bool kFilter>
Result IsKnown(Runtime& runtime, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("test", arguments, {}));
  if (!value.is_string()) return false;
  return kFilter ? FindFilter(value.string()) != nullptr : FindTest(value.string()) != nullptr;
}

struct NamedTest {
  std::string_view name;
  TestFunction function;
};

constexpr NamedTest kTests[] = {
    {"defined", Is<IsDefined>},
    {"undefined", Is<IsUndefined>},
    {"none", Is<IsNone>},
    {"boolean", Is<IsBoolean>},
    {"true", Is<IsTrueItself>},
    {"false", Is<IsFalseItself>},
    {"integer", Is<IsInteger>},
    {"float", Is<IsFloat>},
    {"number", Is<IsNumber>},
    {"string", Is<IsString>},
    {"mapping", Is<IsMapping>},
    {"sequence", Is<IsSequence>},
    {"iterable", Is<IsIterable>},
    {"callable", Is<IsCallable>},
    {"escaped", Is<IsEscaped>},
    {"in", Compares<ComparisonOperator::kIn>},
    {"eq", Compares<ComparisonOperator::kEqual>},
    {"equalto", Compares<ComparisonOperator::kEqual>},
    {"==", Compares<ComparisonOperator::kEqual>},
    {"ne", Compares<ComparisonOperator::kNotEqual>},
    {"!=", Compares<ComparisonOperator::kNotEqual>},
    {"lt", Compares<ComparisonOperator::kLess>},
    {"lessthan", Compares<ComparisonOperator::kLess>},
    {"<", Compares<ComparisonOperator::kLess>},
    {"le", Compares<ComparisonOperator::kLessEqual>},
    {"<=", Compares<ComparisonOperator::kLessEqual>},
    {"gt", Compares<ComparisonOperator::kGreater>},
    {"greaterthan", Compares<ComparisonOperator::kGreater>},
    {">", Compares<ComparisonOperator::kGreater>},
    {"ge", Compares<ComparisonOperator::kGreaterEqual>},
    {">=", Compares<ComparisonOperator::kGreaterEqual>},
    {"sameas", SameAs},
    {"divisibleby", DivisibleBy},
    {"even", HasParity<0>},
    {"odd", HasParity<1>},
    {"upper", HasCase<IsUpper, IsLower>},
    {"lower", HasCase<IsLower, IsUpper>},
    {"filter", IsKnown<true>},
    {"test", IsKnown<false>},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  for (const NamedTest& test : kTests) {
    if (test.name == name) return test.function;
  }
  return nullptr;
}

}  // namespace sluice::engine::jinja
