#include "engine/template/jinja/methods.h"

#include <algorithm>
#include <array>

#include "common/status_macros.h"
#include "engine/template/jinja/arguments.h"
#include "engine/template/jinja/errors.h"

namespace sluice::engine::jinja {
namespace {

class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, std::string_view name, MethodFunction function)
      : self_(std::move(self)), name_(name), function_(function) {}

  std::string TypeName() const override {
    return Join("built-in method ", name_, " of ", jinja::TypeName(self_), " object");
  }
  bool IsCallable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Arguments& arguments) override {
    return function_(runtime, self_, arguments);
  }

 private:
  const Value self_;
  const std::string name_;
  const MethodFunction function_;
};

absl::StatusOr<Value> DictGet(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("get", arguments, {"key", "default"}, 1));
  if (!IsHashable(bound[0])) return TemplateError("unhashable type: '", TypeName(bound[0]), "'");
  const Value* found = self.dict().Find(bound[0]);
  return found != nullptr ? *found : bound.Get(1, Value::None());
}

absl::StatusOr<Value> DictKeys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("keys", arguments, {}));
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict().items()) keys.push_back(key);
  return Value::List(std::move(keys), SequenceKind::kDictKeys);
}

absl::StatusOr<Value> DictValues(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("values", arguments, {}));
  std::vector<Value> values;
  for (const auto& [key, value] : self.dict().items()) values.push_back(value);
  return Value::List(std::move(values), SequenceKind::kDictValues);
}

absl::StatusOr<Value> DictItems(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("items", arguments, {}));
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().items()) items.push_back(Value::Tuple({key, value}));
  return Value::List(std::move(items), SequenceKind::kDictItems);
}

absl::StatusOr<Value> Copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("copy", arguments, {}));
  return self;  // values are immutable
}

absl::StatusOr<Value> ListCount(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("count", arguments, {"value"}, 1));
  int64_t count = 0;
  for (const Value& item : self.items()) {
    ASSIGN_OR_RETURN(const bool is_equal, runtime.Equal(item, bound[0]));
    count += is_equal;
  }
  return Value::Int(count);
}

absl::StatusOr<Value> ListIndex(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("index", arguments, {"value", "start", "stop"}, 1));
  const int64_t size = static_cast<int64_t>(self.items().size());
  ASSIGN_OR_RETURN(int64_t start, bound.Integer(1, 0));
  ASSIGN_OR_RETURN(int64_t stop, bound.Integer(2, size));
  start = std::max<int64_t>(start < 0 ? start + size : start, 0);
  stop = std::min(stop < 0 ? stop + size : stop, size);
  for (int64_t i = start; i < stop; ++i) {
    ASSIGN_OR_RETURN(const bool is_equal, runtime.Equal(self.items()[static_cast<size_t>(i)], bound[0]));
    if (is_equal) return Value::Int(i);
  }
  return TemplateError("the value is not in the ", TypeName(self));
}

struct Method {
  std::string_view name;
  MethodFunction function;
};

constexpr Method kDictMethods[] = {
    {"get", DictGet}, {"keys", DictKeys}, {"values", DictValues}, {"items", DictItems}, {"copy", Copy},
};
constexpr Method kListMethods[] = {{"count", ListCount}, {"index", ListIndex}, {"copy", Copy}};
constexpr Method kTupleMethods[] = {{"count", ListCount}, {"index", ListIndex}};

constexpr std::string_view kMutatingDictMethods[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kMutatingListMethods[] = {"append", "clear", "pop",    "reverse",
                                                     "insert", "sort",  "extend", "remove"};

template <size_t kSize>
MethodFunction Find(const Method (&methods)[kSize], std::string_view name) {
  for (const Method& method : methods) {
    if (method.name == name) return method.function;
  }
  return nullptr;
}

MethodFunction FindFunction(const Value& self, std::string_view name) {
  if (self.is_string()) return FindStringMethod(name);
  if (self.is_dict()) return Find(kDictMethods, name);
  if (!self.is_list()) return nullptr;
  switch (self.sequence().kind) {
    case SequenceKind::kList:
      return Find(kListMethods, name);
    case SequenceKind::kTuple:
    case SequenceKind::kRange:
      return Find(kTupleMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace

Value FindMethod(const Value& self, std::string_view name) {
  const MethodFunction function = FindFunction(self, name);
  if (function == nullptr) return Value();
  return Value::FromObject(std::make_shared<BoundMethod>(self, name, function));
}

bool IsMutatingMethod(const Value& self, std::string_view name) {
  const auto contains = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (self.is_dict()) return contains(kMutatingDictMethods);
  return self.is_sequence_of(SequenceKind::kList) && contains(kMutatingListMethods);
}

}  // namespace sluice::engine::jinja
