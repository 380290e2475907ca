// The expressions of the interpreter.
#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/interpreter.h"
#include "engine/template/jinja/interpreter_depth.h"
#include "engine/template/jinja/operators.h"

namespace sluice::engine::jinja {

absl::StatusOr<Value> Interpreter::Evaluate(const Expr& expr, const ScopePtr& scope) {
  const DepthGuard depth(&stack_depth_);
  if (stack_depth_ > runtime_.limits().max_stack_depth) {
    return AtLine(expr.line, TemplateError("the template nests its calls and expressions too deep"));
  }
  absl::StatusOr<Value> value = std::visit([&](const auto& node) { return Evaluate(node, scope); }, expr.node);
  if (!value.ok()) return AtLine(expr.line, value.status());
  if (Depth(*value) > kMaxNesting) {
    return AtLine(expr.line, TemplateError("a value is nested deeper than ", std::to_string(kMaxNesting), " levels"));
  }
  return value;
}

absl::StatusOr<Value> Interpreter::Charge(absl::StatusOr<Value> value) {
  if (!value.ok()) return value;
  if (value->is_string()) RETURN_IF_ERROR(runtime_.Step(static_cast<int64_t>(value->string().size() >> 10)));
  if (value->is_list()) RETURN_IF_ERROR(runtime_.Step(static_cast<int64_t>(value->items().size() >> 6)));
  return value;
}

absl::StatusOr<Value> Interpreter::Evaluate(const ConstantExpr& expr, const ScopePtr& scope) { return expr.value; }

absl::StatusOr<Value> Interpreter::Evaluate(const NameExpr& expr, const ScopePtr& scope) {
  const Value* found = scope->Find(expr.name);
  if (found != nullptr) return *found;
  return Value::Undefined(Join("'", program_.names[static_cast<size_t>(expr.name)], "' is undefined"));
}

absl::StatusOr<Value> Interpreter::Evaluate(const ListExpr& expr, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*item, scope));
    items.push_back(std::move(value));
  }
  return Value::List(std::move(items), expr.is_tuple ? SequenceKind::kTuple : SequenceKind::kList);
}

absl::StatusOr<Value> Interpreter::Evaluate(const DictExpr& expr, const ScopePtr& scope) {
  Dict dict;
  for (const auto& [key_expr, value_expr] : expr.items) {
    ASSIGN_OR_RETURN(Value key, Evaluate(*key_expr, scope));
    ASSIGN_OR_RETURN(Value value, Evaluate(*value_expr, scope));
    if (!IsHashable(key)) return TemplateError("unhashable type: '", TypeName(key), "'");
    dict.Set(std::move(key), std::move(value));
  }
  return Value::FromDict(std::move(dict));
}

absl::StatusOr<Value> Interpreter::Evaluate(const AttributeExpr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*expr.object, scope));
  return GetAttribute(object, expr.name);
}

absl::StatusOr<Value> Interpreter::Evaluate(const SubscriptExpr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*expr.object, scope));
  ASSIGN_OR_RETURN(const Value index, Evaluate(*expr.index, scope));
  return GetItem(object, index);
}

absl::StatusOr<Value> Interpreter::Evaluate(const SliceExpr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*expr.object, scope));
  Value parts[3] = {Value::None(), Value::None(), Value::None()};
  const ExprPtr* exprs[3] = {&expr.start, &expr.stop, &expr.step};
  for (int i = 0; i < 3; ++i) {
    if (*exprs[i] == nullptr) continue;
    ASSIGN_OR_RETURN(parts[i], Evaluate(**exprs[i], scope));
  }
  return Charge(GetSlice(object, parts[0], parts[1], parts[2]));
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const CallArguments& exprs, const ScopePtr& scope) {
  Arguments arguments;
  arguments.positional.reserve(exprs.positional.size());
  for (const ExprPtr& expr : exprs.positional) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expr, scope));
    arguments.positional.push_back(std::move(value));
  }
  if (exprs.more_positional != nullptr) {
    ASSIGN_OR_RETURN(const Value more, Evaluate(*exprs.more_positional, scope));
    ASSIGN_OR_RETURN(const Value items, Iterate(more));
    arguments.positional.insert(arguments.positional.end(), items.items().begin(), items.items().end());
  }
  for (const auto& [name, expr] : exprs.named) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expr, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (exprs.more_named != nullptr) {
    ASSIGN_OR_RETURN(const Value more, Evaluate(*exprs.more_named, scope));
    if (!more.is_dict()) return TemplateError("argument after ** must be a mapping, not ", TypeName(more));
    for (const auto& [key, value] : more.dict().items()) {
      if (!key.is_string()) return TemplateError("keywords must be strings");
      arguments.named.emplace_back(key.string(), value);
    }
  }
  return arguments;
}

absl::StatusOr<Value> Interpreter::Call(const CallExpr& expr, Arguments arguments, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value callee, Evaluate(*expr.callee, scope));
  if (callee.is_undefined()) return TemplateError(callee.undefined_message());
  if (!callee.is_object()) return TemplateError("'", TypeName(callee), "' object is not callable");
  RETURN_IF_ERROR(runtime_.Step());
  return Charge(callee.object().Call(runtime_, arguments));
}

absl::StatusOr<Value> Interpreter::Evaluate(const CallExpr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expr.arguments, scope));
  return Call(expr, std::move(arguments), scope);
}

absl::StatusOr<Value> Interpreter::ApplyFilter(const FilterCall& filter, const Value& input, const ScopePtr& scope) {
  if (filter.function == nullptr) return TemplateError("no filter named '", filter.name, "'");
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(filter.arguments, scope));
  RETURN_IF_ERROR(runtime_.Step());
  return Charge(filter.function(runtime_, input, arguments));
}

absl::StatusOr<Value> Interpreter::Evaluate(const FilterExpr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value input, Evaluate(*expr.input, scope));
  return ApplyFilter(expr.filter, input, scope);
}

absl::StatusOr<Value> Interpreter::Evaluate(const TestExpr& expr, const ScopePtr& scope) {
  if (expr.function == nullptr) return TemplateError("no test named '", expr.name, "'");
  ASSIGN_OR_RETURN(const Value input, Evaluate(*expr.input, scope));
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expr.arguments, scope));
  ASSIGN_OR_RETURN(const bool passes, expr.function(runtime_, input, arguments));
  return Value::Bool(passes);
}

absl::StatusOr<Value> Interpreter::Evaluate(const UnaryExpr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value operand, Evaluate(*expr.operand, scope));
  return ApplyUnary(expr.op, operand);
}

absl::StatusOr<Value> Interpreter::Evaluate(const BinaryExpr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value left, Evaluate(*expr.left, scope));
  ASSIGN_OR_RETURN(const Value right, Evaluate(*expr.right, scope));
  return Charge(ApplyBinary(runtime_, expr.op, left, right));
}

absl::StatusOr<Value> Interpreter::Evaluate(const LogicalExpr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*expr.left, scope));
  if (IsTrue(left) != expr.is_and) return left;
  return Evaluate(*expr.right, scope);
}

absl::StatusOr<Value> Interpreter::Evaluate(const ComparisonExpr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*expr.first, scope));
  for (const auto& [op, operand] : expr.rest) {
    ASSIGN_OR_RETURN(Value right, Evaluate(*operand, scope));
    ASSIGN_OR_RETURN(const bool holds, Compare(runtime_, op, left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Interpreter::Evaluate(const ConcatExpr& expr, const ScopePtr& scope) {
  std::string text;
  for (const ExprPtr& part : expr.parts) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*part, scope));
    ASSIGN_OR_RETURN(const std::string part_text, runtime_.ToText(value));
    text.append(part_text);
    RETURN_IF_ERROR(runtime_.CheckBytes(text.size()));
  }
  return Charge(Value::String(std::move(text)));
}

absl::StatusOr<Value> Interpreter::Evaluate(const ConditionalExpr& expr, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value condition, Evaluate(*expr.condition, scope));
  if (IsTrue(condition)) return Evaluate(*expr.value, scope);
  if (expr.otherwise != nullptr) return Evaluate(*expr.otherwise, scope);
  return Value::Undefined("the inline if-expression evaluated to false and no else section was defined.");
}

}  // namespace sluice::engine::jinja
