// Comparison, membership, look-ups and iteration. Arithmetic is in arithmetic.cc.
#include "engine/template/jinja/operators.h"

#include <algorithm>
#include <limits>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/methods.h"
#include "engine/template/jinja/python_text.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

absl::StatusOr<bool> IsLessOrEqual(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number() && (a.kind() == Value::Kind::kFloat || b.kind() == Value::Kind::kFloat)) {
    return AsDouble(a) <= AsDouble(b);  // false for NaN, which "not b < a" would miss
  }
  ASSIGN_OR_RETURN(const bool is_greater, IsLess(b, a));
  return !is_greater;
}

// The name by which jinja2's messages call an object.
std::string Describe(const Value& value) { return value.is_none() ? "'None'" : Join("'", TypeName(value), " object'"); }

Value NoAttribute(const Value& object, std::string_view name) {
  return Value::Undefined(Join(Describe(object), " has no attribute '", name, "'"));
}

// The method or attribute that Python's type has by this name, else Undefined.
Value TypeAttribute(const Value& object, std::string_view name) {
  if (object.is_object()) return object.object().Attribute(name);
  return FindMethod(object, name);
}

Value CharacterAt(const std::string& text, int64_t index) {
  if (IsAscii(text)) return Value::String(std::string(1, text[static_cast<size_t>(index)]));
  const std::vector<size_t> starts = CodePointStarts(text);
  const size_t begin = starts[static_cast<size_t>(index)];
  return Value::String(text.substr(begin, starts[static_cast<size_t>(index) + 1] - begin));
}

// The characters of a string or the items of a list by position, negative from the end. Undefined beyond.
Value ElementAt(const Value& object, int64_t index) {
  const int64_t size =
      static_cast<int64_t>(object.is_string() ? CodePointCount(object.string()) : object.items().size());
  const int64_t position = index < 0 ? index + size : index;
  if (position < 0 || position >= size) {
    return Value::Undefined(Join(TypeName(object), " object has no element ", std::to_string(index)));
  }
  return object.is_string() ? CharacterAt(object.string(), position) : object.items()[static_cast<size_t>(position)];
}

bool HasPositions(const Value& value) {
  return value.is_string() || (value.is_list() && value.sequence().kind <= SequenceKind::kRange);
}

// A slice's parts with Python's defaults and clamping: positions first, first + step, ... until `stop`.
struct SliceRange {
  int64_t first;
  int64_t stop;
  int64_t step;
};

absl::StatusOr<SliceRange> ResolveSlice(int64_t size, const Value& start, const Value& stop, const Value& step) {
  SliceRange range{0, size, 1};
  if (!step.is_none()) {
    ASSIGN_OR_RETURN(range.step, AsIndex(step, "a slice's step"));
    if (range.step == 0) return TemplateError("slice step cannot be zero");
    if (range.step == std::numeric_limits<int64_t>::min()) ++range.step;
  }
  const int64_t lowest = range.step < 0 ? -1 : 0;
  const int64_t highest = range.step < 0 ? size - 1 : size;
  range.first = range.step < 0 ? highest : lowest;
  range.stop = range.step < 0 ? lowest : highest;
  const auto clamp = [&](int64_t position) {
    return std::clamp(position < 0 ? position + size : position, lowest, highest);
  };
  if (!start.is_none()) {
    ASSIGN_OR_RETURN(const int64_t position, AsIndex(start, "a slice's start"));
    range.first = clamp(position);
  }
  if (!stop.is_none()) {
    ASSIGN_OR_RETURN(const int64_t position, AsIndex(stop, "a slice's stop"));
    range.stop = clamp(position);
  }
  return range;
}

std::vector<int64_t> SlicePositions(const SliceRange& range) {
  std::vector<int64_t> positions;
  if (range.step > 0) {
    for (int64_t i = range.first; i < range.stop; i += std::min(range.step, range.stop - i)) {
      positions.push_back(i);
    }
  } else {
    for (int64_t i = range.first; i > range.stop; i += std::max(range.step, range.stop - i)) {
      positions.push_back(i);
    }
  }
  return positions;
}

Value SliceString(const Value& object, const SliceRange& range) {
  const std::string& text = object.string();
  const bool is_ascii = IsAscii(text);
  std::string out;
  if (range.step == 1 && range.first < range.stop) {
    const auto first = static_cast<size_t>(range.first);
    const auto stop = static_cast<size_t>(range.stop);
    if (is_ascii) return Value::String(text.substr(first, stop - first));
    const std::vector<size_t> starts = CodePointStarts(text);
    return Value::String(text.substr(starts[first], starts[stop] - starts[first]));
  }
  const std::vector<size_t> starts = CodePointStarts(text);
  for (const int64_t position : SlicePositions(range)) {
    const auto i = static_cast<size_t>(position);
    out.append(text, starts[i], starts[i + 1] - starts[i]);
  }
  return Value::String(std::move(out));
}

absl::StatusOr<Value> Characters(const std::string& text) {
  if (CodePointCount(text) > Limits().max_list_items) return TemplateError("the text is too long to iterate over");
  std::vector<Value> characters;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    NextCodePoint(text, &i);
    characters.push_back(Value::String(text.substr(begin, i - begin)));
  }
  return Value::List(std::move(characters));
}

}  // namespace

absl::StatusOr<bool> Compare(Runtime& runtime, ComparisonOperator op, const Value& left, const Value& right) {
  switch (op) {
    case ComparisonOperator::kEqual:
      return runtime.Equal(left, right);
    case ComparisonOperator::kNotEqual: {
      ASSIGN_OR_RETURN(const bool is_equal, runtime.Equal(left, right));
      return !is_equal;
    }
    case ComparisonOperator::kLess:
      return IsLess(left, right);
    case ComparisonOperator::kLessEqual:
      return IsLessOrEqual(left, right);
    case ComparisonOperator::kGreater:
      return IsLess(right, left);
    case ComparisonOperator::kGreaterEqual:
      return IsLessOrEqual(right, left);
    case ComparisonOperator::kIn:
      return Contains(runtime, right, left);
    case ComparisonOperator::kNotIn: {
      ASSIGN_OR_RETURN(const bool is_in, Contains(runtime, right, left));
      return !is_in;
    }
  }
  return false;
}

absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (item.is_string()) return container.string().find(item.string()) != std::string::npos;
    return TemplateError("'in <string>' requires string as left operand, not ", TypeName(item));
  }
  if (container.is_dict()) {
    if (!IsHashable(item)) return TemplateError("unhashable type: '", TypeName(item), "'");
    return container.dict().Find(item) != nullptr;
  }
  if (!container.is_list() && !container.is_undefined()) {
    return TemplateError("argument of type '", TypeName(container), "' is not iterable");
  }
  ASSIGN_OR_RETURN(const Value items, Iterate(container));
  for (const Value& candidate : items.items()) {
    ASSIGN_OR_RETURN(const bool is_equal, runtime.Equal(candidate, item));
    if (is_equal) return true;
  }
  return false;
}

absl::StatusOr<Value> GetAttribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) return TemplateError(object.undefined_message());
  Value attribute = TypeAttribute(object, name);
  if (!attribute.is_undefined()) return attribute;
  if (object.is_dict()) {
    if (IsMutatingMethod(object, name)) {
      return Value::Undefined(Join("access to attribute '", name, "' of '", TypeName(object), "' object is unsafe."));
    }
    const Value* found = object.dict().Find(name);
    if (found != nullptr) return *found;
  }
  return NoAttribute(object, name);
}

absl::StatusOr<Value> GetItem(const Value& object, const Value& index) {
  if (object.is_undefined()) return TemplateError(object.undefined_message());
  if (object.is_dict() && IsHashable(index)) {
    const Value* found = object.dict().Find(index);
    if (found != nullptr) return *found;
  }
  if (HasPositions(object) && (index.kind() == Value::Kind::kInt || index.is_bool())) {
    return ElementAt(object, index.is_bool() ? index.bool_value() : index.int_value());
  }
  if (index.is_string()) {
    Value attribute = TypeAttribute(object, index.string());
    if (!attribute.is_undefined()) return attribute;
    return NoAttribute(object, index.string());
  }
  return Value::Undefined(Join(TypeName(object), " object has no element ", Repr(index, 200)));
}

absl::StatusOr<Value> GetSlice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) return TemplateError(object.undefined_message());
  if (!HasPositions(object)) return TemplateError("'", TypeName(object), "' object cannot be sliced");
  const size_t size = object.is_string() ? CodePointCount(object.string()) : object.items().size();
  ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(static_cast<int64_t>(size), start, stop, step));
  if (object.is_string()) return SliceString(object, range);
  std::vector<Value> items;
  for (const int64_t position : SlicePositions(range)) items.push_back(object.items()[static_cast<size_t>(position)]);
  return Value::List(std::move(items), object.sequence().kind);
}

absl::StatusOr<Value> Iterate(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return Value::List({});
    case Value::Kind::kString:
      return Characters(value.string());
    case Value::Kind::kDict: {
      std::vector<Value> keys;
      for (const auto& [key, field] : value.dict().items()) keys.push_back(key);
      return Value::List(std::move(keys));
    }
    case Value::Kind::kList: {
      if (value.sequence().kind != SequenceKind::kGenerator) return value;
      if (value.sequence().consumed) return Value::List({});
      value.sequence().consumed = true;
      return value;
    }
    default:
      return TemplateError("'", TypeName(value), "' object is not iterable");
  }
}

absl::StatusOr<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return 0;
    case Value::Kind::kString:
      return static_cast<int64_t>(CodePointCount(value.string()));
    case Value::Kind::kDict:
      return static_cast<int64_t>(value.dict().size());
    case Value::Kind::kList:
      if (value.sequence().kind != SequenceKind::kGenerator) return static_cast<int64_t>(value.items().size());
      break;
    default:
      break;
  }
  return TemplateError("object of type '", TypeName(value), "' has no len()");
}

absl::StatusOr<int64_t> AsIndex(const Value& value, std::string_view what) {
  if (value.is_bool()) return int64_t{value.bool_value()};
  if (value.kind() == Value::Kind::kInt) return value.int_value();
  if (value.kind() == Value::Kind::kBigInt) {  // no list is that long, so the end is near enough
    const bool is_negative = value.big_int_digits()[0] == '-';
    return is_negative ? std::numeric_limits<int64_t>::min() / 2 : std::numeric_limits<int64_t>::max() / 2;
  }
  if (value.is_undefined()) return TemplateError(value.undefined_message());
  return TemplateError(what, " must be an integer, not '", TypeName(value), "'");
}

}  // namespace sluice::engine::jinja
