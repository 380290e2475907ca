// Macros and the callers of {% call %} blocks.
#include <algorithm>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/interpreter.h"
#include "engine/template/jinja/interpreter_depth.h"

namespace sluice::engine::jinja {

class Interpreter::Macro final : public Object {
 public:
  Macro(Interpreter* interpreter, std::string name, const Signature& signature, const Body& body, ScopePtr scope)
      : interpreter_(*interpreter),
        name_(std::move(name)),
        signature_(signature),
        body_(body),
        scope_(std::move(scope)) {}

  std::string TypeName() const override { return "Macro"; }
  bool IsCallable() const override { return true; }

  Value Attribute(std::string_view attribute) const override {
    return attribute == "name" ? Value::String(name_) : Object::Attribute(attribute);
  }

  absl::StatusOr<Value> Call(Runtime& runtime, const Arguments& arguments) override {
    const DepthGuard depth(&interpreter_.call_depth_);
    if (interpreter_.call_depth_ > runtime.limits().max_call_depth) {
      return TemplateError("macro '", name_, "' recurses too deep");
    }
    RETURN_IF_ERROR(runtime.Step());
    const auto scope = std::make_shared<Scope>(scope_);
    RETURN_IF_ERROR(BindParameters(arguments, scope));
    Output captured{"", true};
    RETURN_IF_ERROR(interpreter_.ExecuteBody(body_, scope, &captured));
    return Value::String(std::move(captured.text));
  }

 private:
  std::string ParameterName(size_t i) const {
    return interpreter_.program_.names[static_cast<size_t>(signature_.parameters[i])];
  }

  absl::Status BindParameters(const Arguments& arguments, const ScopePtr& scope) {
    std::vector<std::pair<std::string, Value>> named = arguments.named;
    const auto take = [&named](const std::string& name, Value* value) {
      const auto found = std::find_if(named.begin(), named.end(), [&](const auto& pair) { return pair.first == name; });
      if (found == named.end()) return false;
      *value = std::move(found->second);
      named.erase(found);
      return true;
    };
    const size_t count = signature_.parameters.size();
    const size_t first_default = count - signature_.defaults.size();
    for (size_t i = 0; i < count; ++i) {
      Value value = Value::Undefined(Join("parameter '", ParameterName(i), "' was not provided"));
      if (i < arguments.positional.size()) {
        value = arguments.positional[i];
      } else if (!take(ParameterName(i), &value) && i >= first_default) {
        ASSIGN_OR_RETURN(value, interpreter_.Evaluate(*signature_.defaults[i - first_default], scope));
      }
      scope->Set(signature_.parameters[i], std::move(value));
    }
    if (signature_.uses_caller) {
      Value caller = Value::Undefined("No caller defined");
      take("caller", &caller);
      scope->Set(interpreter_.program_.caller, std::move(caller));
    }
    return BindRest(arguments, named, scope);
  }

  // What no parameter takes: varargs and kwargs where the body reads them, else errors.
  absl::Status BindRest(const Arguments& arguments, const std::vector<std::pair<std::string, Value>>& named,
                        const ScopePtr& scope) {
    if (signature_.uses_kwargs) {
      Dict kwargs;
      for (const auto& [name, value] : named) kwargs.Set(name, value);
      scope->Set(interpreter_.program_.kwargs, Value::FromDict(std::move(kwargs)));
    } else if (!named.empty()) {
      return TemplateError("macro '", name_, "' takes no keyword argument '", named[0].first, "'");
    }
    const size_t count = std::min(signature_.parameters.size(), arguments.positional.size());
    if (signature_.uses_varargs) {
      const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(count);
      scope->Set(interpreter_.program_.varargs, Value::Tuple({rest, arguments.positional.end()}));
    } else if (arguments.positional.size() > count) {
      return TemplateError("macro '", name_, "' takes not more than ", std::to_string(count), " argument(s)");
    }
    return absl::OkStatus();
  }

  Interpreter& interpreter_;
  const std::string name_;
  const Signature& signature_;
  const Body& body_;
  const ScopePtr scope_;
};

Value Interpreter::MakeMacro(std::string name, const Signature& signature, const Body& body, const ScopePtr& scope) {
  if (captured_scopes_.empty() || captured_scopes_.back() != scope) captured_scopes_.push_back(scope);
  return Value::FromObject(std::make_shared<Macro>(this, std::move(name), signature, body, scope));
}

}  // namespace sluice::engine::jinja
