// The values that a chat template computes with: Python's, as far as templates can see them.
//
// A Value is small and cheap to copy; strings, lists and dicts are shared and immutable (a template runs in a sandbox
// in which mutating methods are errors). The only mutable values are Objects, which live for one rendering. Values made
// of the immutable kinds may be read from any thread.
//
//   Value messages = Value::List({Value::DictOf({{"role", Value::String("user")}})});
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::engine::jinja {

class Value;
class Dict;
class Object;
struct Sequence;

// How a sequence came to be; it decides what Python lets a template do with it.
enum class SequenceKind {
  kList,
  kTuple,
  kRange,
  kDictKeys,  // the views that dict.keys(), values() and items() return: no subscripts, no JSON
  kDictValues,
  kDictItems,
  kGenerator,  // what select, map and their like return: always true, no length, can be read once
};

class Value {
 public:
  enum class Kind { kUndefined, kNone, kBool, kInt, kBigInt, kFloat, kString, kList, kDict, kObject };

  // Undefined: what a missing variable or attribute yields. Prints as nothing, is false and empty; most else is an
  // error.
  Value() = default;
  // `why` is the message of the error that using the value gives, such as "'dict object' has no attribute 'x'".
  static Value Undefined(std::string why);
  static Value None() { return Value(NoneType{}); }
  static Value Bool(bool value) { return Value(value); }
  static Value Int(int64_t value) { return Value(value); }
  // An integer of any size, as decimal text with an optional minus sign. Becomes kInt where it fits into 64 bits.
  // REQUIRES: `digits` matches -?[0-9]+.
  static Value Integer(std::string_view digits);
  static Value Float(double value) { return Value(value); }
  static Value String(std::string text);
  // A string that markupsafe would call Markup: what is joined to it with + is HTML-escaped.
  static Value SafeString(std::string text);
  static Value List(std::vector<Value> items, SequenceKind kind = SequenceKind::kList);
  static Value Tuple(std::vector<Value> items) { return List(std::move(items), SequenceKind::kTuple); }
  static Value FromDict(Dict dict);
  // Keys are strings, later duplicates replace the value of earlier ones.
  static Value DictOf(std::initializer_list<std::pair<std::string, Value>> items);
  static Value FromObject(std::shared_ptr<Object> object);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_list() const { return kind() == Kind::kList; }  // any SequenceKind
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_object() const { return kind() == Kind::kObject; }
  bool is_integer() const { return kind() == Kind::kInt || kind() == Kind::kBigInt; }  // not bool
  bool is_number() const { return is_bool() || is_integer() || kind() == Kind::kFloat; }
  bool is_sequence_of(SequenceKind kind) const;

  // REQUIRES for each: the value is of that kind.
  bool bool_value() const { return std::get<bool>(data_); }
  int64_t int_value() const { return std::get<int64_t>(data_); }
  double float_value() const { return std::get<double>(data_); }
  const std::string& big_int_digits() const { return *std::get<BigIntType>(data_).digits; }
  const std::string& string() const { return std::get<StringType>(data_).text->text; }
  bool is_safe_string() const { return is_string() && std::get<StringType>(data_).text->safe; }
  const std::vector<Value>& items() const;
  const Sequence& sequence() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }
  const std::shared_ptr<Object>& object_ptr() const { return std::get<std::shared_ptr<Object>>(data_); }
  std::string undefined_message() const;

  // The field of a dict; Undefined where this is not a dict or has no such key.
  Value Field(std::string_view key) const;

 private:
  struct UndefinedType {
    std::shared_ptr<const std::string> why;
  };
  struct NoneType {};
  struct BigIntType {
    std::shared_ptr<const std::string> digits;
  };
  struct Text {
    std::string text;
    bool safe = false;
  };
  struct StringType {
    std::shared_ptr<const Text> text;
  };
  using Data = std::variant<UndefinedType, NoneType, bool, int64_t, BigIntType, double, StringType,
                            std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, std::shared_ptr<Object>>;

  template <typename T>
  explicit Value(T data) : data_(std::move(data)) {}

  Data data_;
};

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  int depth = 1;  // 1 + that of the deepest item
  // Generators only: set when the items were taken. A generator never leaves the rendering (and thread) that made it.
  mutable bool consumed = false;
};

// An ordered map. Keys are any hashable value; 1, 1.0 and true are one key, as in Python.
class Dict {
 public:
  // Adds at the end, or replaces the value of an equal key and keeps that key's place.
  // REQUIRES: IsHashable(key).
  void Set(Value key, Value value);
  void Set(std::string key, Value value) { Set(Value::String(std::move(key)), std::move(value)); }
  // Null where there is no such key. The pointer lives until the next Set.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  size_t size() const { return items_.size(); }
  int depth() const { return depth_; }  // 1 + that of the deepest value

 private:
  // size() where there is no such key.
  size_t IndexOf(const Value& key) const;
  size_t IndexOfText(std::string_view key) const;

  std::vector<std::pair<Value, Value>> items_;
  int depth_ = 1;
  std::unordered_map<std::string, size_t> index_;  // of string keys; filled only once the dict is large
};

// A call's arguments. `named` keeps the order of the call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Runtime;

// A value with behaviour: macro, bound method, namespace, loop, cycler. Used by one rendering, on one thread.
class Object {
 public:
  virtual ~Object() = default;
  // Python's name of the type, for messages and printing.
  virtual std::string TypeName() const = 0;
  // Undefined where there is no such attribute.
  virtual Value Attribute(std::string_view name) const;
  // An error of kInvalidArgument where the object cannot be called.
  virtual absl::StatusOr<Value> Call(Runtime& runtime, const Arguments& arguments);
  virtual bool IsCallable() const { return false; }
};

// Python's name of the value's type: "str", "int", "NoneType", "dict".
std::string TypeName(const Value& value);

// Python's truth of a value.
bool IsTrue(const Value& value);

// Python's ==. 1 == 1.0 == True; list and tuple differ. Compares at most *budget pairs of elements; where that runs out
// *budget is negative and the answer means nothing. Null means no limit.
bool IsEqual(const Value& a, const Value& b, int64_t* budget = nullptr);

// Python's a < b over numbers, strings, lists and tuples. kInvalidArgument where Python raises TypeError.
absl::StatusOr<bool> IsLess(const Value& a, const Value& b);

// False for lists and dicts, and tuples that hold such.
bool IsHashable(const Value& value);

// Levels of lists and dicts in the value: 0 for a scalar, 1 for a list of scalars.
int Depth(const Value& value);

// The number as a double. REQUIRES: value.is_number().
double AsDouble(const Value& value);

}  // namespace sluice::engine::jinja
