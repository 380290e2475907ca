#include "engine/template/jinja/globals.h"

#include <algorithm>

#include "common/status_macros.h"
#include "engine/template/jinja/arguments.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/operators.h"
#include "engine/template/jinja/runtime.h"

namespace sluice::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;
using GlobalFunction = Result (*)(Runtime& runtime, const Arguments& arguments);

constexpr int64_t kMaxRange = 100'000;  // as jinja2's sandbox has it

class Function final : public Object {
 public:
  explicit Function(GlobalFunction function) : function_(function) {}
  std::string TypeName() const override { return "function"; }
  bool IsCallable() const override { return true; }
  Result Call(Runtime& runtime, const Arguments& arguments) override { return function_(runtime, arguments); }

 private:
  const GlobalFunction function_;
};

Result Range(Runtime& runtime, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("range", arguments, {"start", "stop", "step"}, 1));
  ASSIGN_OR_RETURN(int64_t start, bound.Integer(0, 0));
  ASSIGN_OR_RETURN(int64_t stop, bound.Integer(1, 0));
  ASSIGN_OR_RETURN(const int64_t step, bound.Integer(2, 1));
  if (!bound.has(1)) stop = std::exchange(start, 0);
  if (step == 0) return TemplateError("range() arg 3 must not be zero");
  std::vector<Value> numbers;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(numbers.size()) == kMaxRange) {
      return TemplateError("Range too big. The sandbox blocks ranges larger than ", std::to_string(kMaxRange), ".");
    }
    numbers.push_back(Value::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::List(std::move(numbers), SequenceKind::kRange);
}

// dict(...): a dict or a list of pairs, and keyword arguments.
absl::StatusOr<Dict> MakeDict(Runtime& runtime, const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) return TemplateError("dict expected at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_undefined()) return TemplateError(source.undefined_message());
    if (source.is_dict()) {
      dict = source.dict();
    } else {
      ASSIGN_OR_RETURN(const Value pairs, Iterate(source));
      for (const Value& pair : pairs.items()) {
        ASSIGN_OR_RETURN(const Value parts, Iterate(pair));
        if (parts.items().size() != 2) return TemplateError("a dict is made of pairs");
        if (!IsHashable(parts.items()[0])) return TemplateError("unhashable type: '", TypeName(parts.items()[0]), "'");
        // Only strings are indexed; other keys are compared one by one.
        RETURN_IF_ERROR(runtime.Step(parts.items()[0].is_string() ? 1 : 1 + static_cast<int64_t>(dict.size())));
        dict.Set(parts.items()[0], parts.items()[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.Set(name, value);
  return dict;
}

Result MakeDictValue(Runtime& runtime, const Arguments& arguments) {
  ASSIGN_OR_RETURN(Dict dict, MakeDict(runtime, arguments));
  return Value::FromDict(std::move(dict));
}

Result MakeNamespace(Runtime& runtime, const Arguments& arguments) {
  ASSIGN_OR_RETURN(Dict attributes, MakeDict(runtime, arguments));
  return runtime.MakeNamespace(std::move(attributes));
}

Result RaiseException(Runtime& runtime, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("raise_exception", arguments, {"message"}, 1));
  ASSIGN_OR_RETURN(const std::string message, runtime.ToText(bound[0]));
  return TemplateError(message);
}

Result StrftimeNow(Runtime& runtime, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("strftime_now", arguments, {"format"}, 1));
  ASSIGN_OR_RETURN(const std::string format, bound.Text(0, ""));
  if (!runtime.now().has_value()) {
    return TemplateError("the template asks for the date (strftime_now), and none was given");
  }
  return Value::String(absl::FormatTime(format, *runtime.now(), runtime.time_zone()));
}

// cycler(a, b, ...): next() gives the items by turns, current the one that next() will give, reset() starts over.
class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : state_(std::make_shared<State>(State{std::move(items)})) {}
  std::string TypeName() const override { return "Cycler"; }
  Value Attribute(std::string_view name) const override {
    if (name == "current") return state_->items[state_->position];
    if (name == "next") return Value::FromObject(std::make_shared<Method>(state_, /*resets=*/false));
    if (name == "reset") return Value::FromObject(std::make_shared<Method>(state_, /*resets=*/true));
    return Object::Attribute(name);
  }

 private:
  struct State {
    std::vector<Value> items;
    size_t position = 0;
  };
  class Method final : public Object {
   public:
    Method(std::shared_ptr<State> state, bool resets) : state_(std::move(state)), resets_(resets) {}
    std::string TypeName() const override { return "method"; }
    bool IsCallable() const override { return true; }
    Result Call(Runtime& runtime, const Arguments& arguments) override {
      RETURN_IF_ERROR(Bind("cycler method", arguments, {}));
      const Value current = state_->items[state_->position];
      state_->position = resets_ ? 0 : (state_->position + 1) % state_->items.size();
      return resets_ ? Value::None() : current;
    }

   private:
    const std::shared_ptr<State> state_;
    const bool resets_;
  };

  const std::shared_ptr<State> state_;
};

Result MakeCycler(Runtime& runtime, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty())
    return TemplateError("at least one item has to be provided");
  return Value::FromObject(std::make_shared<Cycler>(arguments.positional));
}

// joiner(separator): "" at the first call, the separator at all later ones.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string TypeName() const override { return "Joiner"; }
  bool IsCallable() const override { return true; }
  Result Call(Runtime& runtime, const Arguments& arguments) override {
    RETURN_IF_ERROR(Bind("joiner", arguments, {}));
    return std::exchange(used_, true) ? separator_ : Value::String("");
  }

 private:
  const Value separator_;
  bool used_ = false;
};

Result MakeJoiner(Runtime& runtime, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("joiner", arguments, {"sep"}));
  return Value::FromObject(std::make_shared<Joiner>(bound.Get(0, Value::String(", "))));
}

struct NamedFunction {
  std::string_view name;
  GlobalFunction function;
};

constexpr NamedFunction kFunctions[] = {
    {"range", Range},
    {"dict", MakeDictValue},
    {"namespace", MakeNamespace},
    {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
    {"cycler", MakeCycler},
    {"joiner", MakeJoiner},
};

}  // namespace

std::optional<Value> FindGlobal(std::string_view name) {
  for (const NamedFunction& function : kFunctions) {
    if (function.name == name) return Value::FromObject(std::make_shared<Function>(function.function));
  }
  return std::nullopt;
}

}  // namespace sluice::engine::jinja
