#include "engine/template/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/python_text.h"

namespace sluice::engine::jinja {
namespace {

// Below this size a scan is faster than hashing, and most dicts of a conversation are small.
constexpr size_t kIndexedDictSize = 12;

// Compares integers of which at least one does not fit into 64 bits: -1, 0, 1.
int CompareIntegers(const Value& a, const Value& b) {
  const std::string left = Str(a);
  const std::string right = Str(b);
  const bool left_negative = left[0] == '-';
  const bool right_negative = right[0] == '-';
  if (left_negative != right_negative) return left_negative ? -1 : 1;
  int order = left.size() != right.size() ? (left.size() < right.size() ? -1 : 1) : left.compare(right);
  order = order < 0 ? -1 : order > 0;
  return left_negative ? -order : order;
}

bool IsBigInt(const Value& value) { return value.kind() == Value::Kind::kBigInt; }

int64_t SmallInt(const Value& value) { return value.is_bool() ? value.bool_value() : value.int_value(); }

bool IsNumberEqual(const Value& a, const Value& b) {
  if (a.kind() == Value::Kind::kFloat || b.kind() == Value::Kind::kFloat) return AsDouble(a) == AsDouble(b);
  if (IsBigInt(a) || IsBigInt(b)) return IsBigInt(a) && IsBigInt(b) && a.big_int_digits() == b.big_int_digits();
  return SmallInt(a) == SmallInt(b);
}

bool IsNumberLess(const Value& a, const Value& b) {
  if (a.kind() == Value::Kind::kFloat || b.kind() == Value::Kind::kFloat) return AsDouble(a) < AsDouble(b);
  if (IsBigInt(a) || IsBigInt(b)) return CompareIntegers(a, b) < 0;
  return SmallInt(a) < SmallInt(b);
}

// Ranges and lists made by hand compare by kind, as list and tuple do.
bool IsSequenceEqual(const Sequence& a, const Sequence& b, int64_t* budget) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (budget != nullptr && *budget < 0) return false;
    if (!IsEqual(a.items[i], b.items[i], budget)) return false;
  }
  return true;
}

bool IsDictEqual(const Dict& a, const Dict& b, int64_t* budget) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.items()) {
    if (budget != nullptr && *budget < 0) return false;
    const Value* other = b.Find(key);
    if (other == nullptr || !IsEqual(value, *other, budget)) return false;
  }
  return true;
}

}  // namespace

Value Value::Undefined(std::string why) {
  return Value(UndefinedType{std::make_shared<const std::string>(std::move(why))});
}

Value Value::Integer(std::string_view digits) {
  int64_t small = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), small);
  if (error == std::errc()) return Int(small);
  std::string text(digits.substr(0, digits[0] == '-'));
  const size_t first = digits.find_first_not_of('0', text.size());
  text.append(digits.substr(first));
  if (text.size() <= 20) {  // leading zeros may have hidden a small number
    const auto [again_end, again] = std::from_chars(text.data(), text.data() + text.size(), small);
    if (again == std::errc()) return Int(small);
  }
  return Value(BigIntType{std::make_shared<const std::string>(std::move(text))});
}

Value Value::String(std::string text) {
  return Value(StringType{std::make_shared<const Text>(Text{std::move(text), false})});
}

Value Value::SafeString(std::string text) {
  return Value(StringType{std::make_shared<const Text>(Text{std::move(text), true})});
}

Value Value::List(std::vector<Value> items, SequenceKind kind) {
  int depth = 1;
  for (const Value& item : items) depth = std::max(depth, 1 + Depth(item));
  return Value(std::shared_ptr<const Sequence>(std::make_shared<Sequence>(Sequence{kind, std::move(items), depth})));
}

Value Value::FromDict(Dict dict) { return Value(std::shared_ptr<const Dict>(std::make_shared<Dict>(std::move(dict)))); }

Value Value::DictOf(std::initializer_list<std::pair<std::string, Value>> items) {
  Dict dict;
  for (const auto& [key, value] : items) dict.Set(key, value);
  return FromDict(std::move(dict));
}

Value Value::FromObject(std::shared_ptr<Object> object) { return Value(std::move(object)); }

bool Value::is_sequence_of(SequenceKind kind) const { return is_list() && sequence().kind == kind; }

const std::vector<Value>& Value::items() const { return sequence().items; }

std::string Value::undefined_message() const {
  const auto& why = std::get<UndefinedType>(data_).why;
  return why == nullptr ? "the value is undefined" : *why;
}

Value Value::Field(std::string_view key) const {
  if (!is_dict()) return Value();
  const Value* found = dict().Find(key);
  return found == nullptr ? Value() : *found;
}

size_t Dict::IndexOfText(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(std::string(key));
    return found == index_.end() ? items_.size() : found->second;
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].first.is_string() && items_[i].first.string() == key) return i;
  }
  return items_.size();
}

size_t Dict::IndexOf(const Value& key) const {
  if (key.is_string()) return IndexOfText(key.string());
  for (size_t i = 0; i < items_.size(); ++i) {
    if (IsEqual(items_[i].first, key)) return i;
  }
  return items_.size();
}

void Dict::Set(Value key, Value value) {
  depth_ = std::max(depth_, 1 + Depth(value));
  if (const size_t present = IndexOf(key); present < items_.size()) {
    items_[present].second = std::move(value);
    return;
  }
  if (key.is_string() && !index_.empty()) index_.emplace(key.string(), items_.size());
  items_.emplace_back(std::move(key), std::move(value));
  if (items_.size() == kIndexedDictSize) {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].first.is_string()) index_.emplace(items_[i].first.string(), i);
    }
  }
}

const Value* Dict::Find(std::string_view key) const {
  const size_t i = IndexOfText(key);
  return i == items_.size() ? nullptr : &items_[i].second;
}

const Value* Dict::Find(const Value& key) const {
  const size_t i = IndexOf(key);
  return i == items_.size() ? nullptr : &items_[i].second;
}

Value Object::Attribute(std::string_view name) const {
  return Value::Undefined(Join("'", TypeName(), " object' has no attribute '", name, "'"));
}

absl::StatusOr<Value> Object::Call(Runtime& runtime, const Arguments& arguments) {
  return TemplateError("'", TypeName(), "' object is not callable");
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return "Undefined";
    case Value::Kind::kNone:
      return "NoneType";
    case Value::Kind::kBool:
      return "bool";
    case Value::Kind::kInt:
    case Value::Kind::kBigInt:
      return "int";
    case Value::Kind::kFloat:
      return "float";
    case Value::Kind::kString:
      return value.is_safe_string() ? "Markup" : "str";
    case Value::Kind::kDict:
      return "dict";
    case Value::Kind::kObject:
      return value.object().TypeName();
    case Value::Kind::kList:
      break;
  }
  switch (value.sequence().kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
      return "tuple";
    case SequenceKind::kRange:
      return "range";
    case SequenceKind::kDictKeys:
      return "dict_keys";
    case SequenceKind::kDictValues:
      return "dict_values";
    case SequenceKind::kDictItems:
      return "dict_items";
    case SequenceKind::kGenerator:
      return "generator";
  }
  return "object";
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return false;
    case Value::Kind::kBool:
      return value.bool_value();
    case Value::Kind::kInt:
      return value.int_value() != 0;
    case Value::Kind::kFloat:
      return value.float_value() != 0.0;
    case Value::Kind::kString:
      return !value.string().empty();
    case Value::Kind::kList:
      return value.sequence().kind == SequenceKind::kGenerator || !value.items().empty();
    case Value::Kind::kDict:
      return value.dict().size() != 0;
    case Value::Kind::kBigInt:
    case Value::Kind::kObject:
      return true;
  }
  return true;
}

bool IsEqual(const Value& a, const Value& b, int64_t* budget) {
  if (budget != nullptr && --*budget < 0) return false;
  if (a.is_number() && b.is_number()) return IsNumberEqual(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kString:
      return a.string() == b.string();
    case Value::Kind::kList:
      return &a.sequence() == &b.sequence() || IsSequenceEqual(a.sequence(), b.sequence(), budget);
    case Value::Kind::kDict:
      return &a.dict() == &b.dict() || IsDictEqual(a.dict(), b.dict(), budget);
    case Value::Kind::kObject:
      return &a.object() == &b.object();
    default:
      return false;  // numbers are done
  }
}

absl::StatusOr<bool> IsLess(const Value& a, const Value& b) {
  if (a.is_undefined()) return TemplateError(a.undefined_message());
  if (b.is_undefined()) return TemplateError(b.undefined_message());
  if (a.is_number() && b.is_number()) return IsNumberLess(a, b);
  if (a.is_string() && b.is_string()) return a.string() < b.string();  // UTF-8 orders as code points do
  const bool comparable =
      a.is_list() && b.is_list() && a.sequence().kind == b.sequence().kind && a.sequence().kind <= SequenceKind::kTuple;
  if (!comparable) {
    return TemplateError("'<' not supported between instances of '", TypeName(a), "' and '", TypeName(b), "'");
  }
  const std::vector<Value>& left = a.items();
  const std::vector<Value>& right = b.items();
  for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (!IsEqual(left[i], right[i])) return IsLess(left[i], right[i]);
  }
  return left.size() < right.size();
}

bool IsHashable(const Value& value) {
  if (value.is_dict()) return false;
  if (!value.is_list()) return true;
  if (value.sequence().kind == SequenceKind::kRange) return true;
  if (value.sequence().kind != SequenceKind::kTuple) return false;
  for (const Value& item : value.items()) {
    if (!IsHashable(item)) return false;
  }
  return true;
}

int Depth(const Value& value) {
  if (value.is_list()) return value.sequence().depth;
  return value.is_dict() ? value.dict().depth() : 0;
}

double AsDouble(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kBool:
      return value.bool_value() ? 1.0 : 0.0;
    case Value::Kind::kInt:
      return static_cast<double>(value.int_value());
    case Value::Kind::kBigInt: {
      const std::string& digits = value.big_int_digits();
      double number = 0.0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (error == std::errc::result_out_of_range) {
        number = digits[0] == '-' ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
      }
      return number;
    }
    default:
      return value.float_value();
  }
}

}  // namespace sluice::engine::jinja
