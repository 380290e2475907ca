// The statements of the interpreter. Expressions are in interpreter_expressions.cc, macros in interpreter_macro.cc.
#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/interpreter.h"
#include "engine/template/jinja/interpreter_depth.h"
#include "engine/template/jinja/objects.h"
#include "engine/template/jinja/operators.h"

namespace sluice::engine::jinja {

absl::Status AtLine(int line, const absl::Status& status) {
  static constexpr std::string_view kPrefix = "chat template line ";
  const std::string message(status.message());
  if (status.ok() || message.starts_with(kPrefix)) return status;
  return absl::Status(status.code(), Join(kPrefix, std::to_string(line), ": ", message));
}

Interpreter::~Interpreter() {
  for (const ScopePtr& scope : captured_scopes_) scope->Clear();
}

absl::Status Interpreter::Run(const ScopePtr& root, Output* output) {
  return ExecuteBody(program_.body, root, output).status();
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteBody(const Body& body, const ScopePtr& scope, Output* output) {
  for (const Statement& statement : body) {
    ASSIGN_OR_RETURN(const Flow flow, ExecuteStatement(statement, scope, output));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteStatement(const Statement& statement, const ScopePtr& scope,
                                                                Output* output) {
  const DepthGuard depth(&stack_depth_);
  if (stack_depth_ > runtime_.limits().max_stack_depth) {
    return AtLine(statement.line, TemplateError("the template nests its calls and blocks too deep"));
  }
  absl::StatusOr<Flow> flow =
      std::visit([&](const auto& node) { return Execute(node, scope, output); }, statement.node);
  if (!flow.ok()) return AtLine(statement.line, flow.status());
  return flow;
}

absl::Status Interpreter::Write(std::string_view text, Output* output) {
  RETURN_IF_ERROR(runtime_.CheckBytes(output->text.size() + text.size()));
  output->text.append(text);
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const TextStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  RETURN_IF_ERROR(Write(statement.text, output));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const OutputStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value, scope));
  if (value.is_string()) {
    RETURN_IF_ERROR(Write(value.string(), output));
    return Flow::kNext;
  }
  ASSIGN_OR_RETURN(const std::string text, runtime_.ToText(value));
  RETURN_IF_ERROR(Write(text, output));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const IfStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  for (const auto& [condition, body] : statement.branches) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*condition, scope));
    if (IsTrue(value)) return ExecuteBody(body, scope, output);
  }
  return ExecuteBody(statement.otherwise, scope, output);
}

// The items that the loop visits: those of the iterable that meet its condition.
absl::StatusOr<Value> Interpreter::LoopItems(const ForStatement& statement, const ScopePtr& scope) {
  ASSIGN_OR_RETURN(const Value iterable, Evaluate(*statement.iterable, scope));
  ASSIGN_OR_RETURN(Value items, Iterate(iterable));
  if (statement.condition == nullptr) return items;
  std::vector<Value> selected;
  for (const Value& item : items.items()) {
    RETURN_IF_ERROR(runtime_.Step());
    const auto item_scope = std::make_shared<Scope>(scope);
    RETURN_IF_ERROR(Assign(statement.target, item, item_scope));
    ASSIGN_OR_RETURN(const Value condition, Evaluate(*statement.condition, item_scope));
    if (IsTrue(condition)) selected.push_back(item);
  }
  return Value::List(std::move(selected));
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const ForStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  ASSIGN_OR_RETURN(const Value items, LoopItems(statement, scope));
  if (items.items().empty()) {
    return ExecuteBody(statement.otherwise, std::make_shared<Scope>(scope), output);
  }
  const auto loop = std::make_shared<Loop>(items);
  const Value loop_value = Value::FromObject(loop);
  auto body_scope = std::make_shared<Scope>(scope);
  for (size_t i = 0; i < items.items().size(); ++i) {
    RETURN_IF_ERROR(runtime_.Step());
    // Each pass has its own variables. A macro made in the last pass keeps that pass's.
    if (body_scope.use_count() > 1) {
      body_scope = std::make_shared<Scope>(scope);
    } else {
      body_scope->Clear();
    }
    loop->MoveTo(i);
    body_scope->Set(program_.loop, loop_value);
    RETURN_IF_ERROR(Assign(statement.target, items.items()[i], body_scope));
    ASSIGN_OR_RETURN(const Flow flow, ExecuteBody(statement.body, body_scope, output));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

absl::Status Interpreter::Assign(const Target& target, Value value, const ScopePtr& scope) {
  if (target.is_tuple) {
    ASSIGN_OR_RETURN(const Value parts, Iterate(value));
    if (parts.items().size() != target.elements.size()) {
      return TemplateError("expected ", std::to_string(target.elements.size()), " values to unpack, got ",
                           std::to_string(parts.items().size()));
    }
    for (size_t i = 0; i < target.elements.size(); ++i) {
      RETURN_IF_ERROR(Assign(target.elements[i], parts.items()[i], scope));
    }
    return absl::OkStatus();
  }
  if (target.attribute.empty()) {
    scope->Set(target.name, std::move(value));
    return absl::OkStatus();
  }
  const Value* found = scope->Find(target.name);
  auto* object = found != nullptr && found->is_object() ? dynamic_cast<Namespace*>(&found->object()) : nullptr;
  if (object == nullptr) {
    return TemplateError("cannot assign attribute '", target.attribute, "' on non-namespace object '",
                         program_.names[static_cast<size_t>(target.name)], "'");
  }
  object->Set(target.attribute, std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const SetStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  ASSIGN_OR_RETURN(Value value, Evaluate(*statement.value, scope));
  RETURN_IF_ERROR(Assign(statement.target, std::move(value), scope));
  return Flow::kNext;
}

absl::StatusOr<Value> Interpreter::ApplyFilters(const std::vector<FilterCall>& filters, Value value,
                                                const ScopePtr& scope) {
  for (const FilterCall& filter : filters) {
    ASSIGN_OR_RETURN(value, ApplyFilter(filter, value, scope));
  }
  return value;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const SetBlockStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  Output captured{"", true};
  const auto body_scope = std::make_shared<Scope>(scope);
  ASSIGN_OR_RETURN(const Flow flow, ExecuteBody(statement.body, body_scope, &captured));
  if (flow != Flow::kNext) return flow;
  ASSIGN_OR_RETURN(Value value, ApplyFilters(statement.filters, Value::String(std::move(captured.text)), body_scope));
  RETURN_IF_ERROR(Assign(statement.target, std::move(value), scope));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const MacroStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  const std::string& name = program_.names[static_cast<size_t>(statement.name)];
  scope->Set(statement.name, MakeMacro(name, statement.signature, statement.body, scope));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const CallBlockStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  const auto& call = std::get<CallExpr>(statement.call->node);
  ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(call.arguments, scope));
  arguments.named.emplace_back("caller", MakeMacro("caller", statement.signature, statement.body, scope));
  ASSIGN_OR_RETURN(const Value value, Call(call, std::move(arguments), scope));
  ASSIGN_OR_RETURN(const std::string text, runtime_.ToText(value));
  RETURN_IF_ERROR(Write(text, output));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const FilterBlockStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  Output captured{"", true};
  const auto body_scope = std::make_shared<Scope>(scope);
  ASSIGN_OR_RETURN(const Flow flow, ExecuteBody(statement.body, body_scope, &captured));
  if (flow != Flow::kNext) return flow;
  ASSIGN_OR_RETURN(const Value value,
                   ApplyFilters(statement.filters, Value::String(std::move(captured.text)), body_scope));
  ASSIGN_OR_RETURN(const std::string text, runtime_.ToText(value));
  RETURN_IF_ERROR(Write(text, output));
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const GenerationStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  const size_t begin = output->text.size();
  ASSIGN_OR_RETURN(const Flow flow, ExecuteBody(statement.body, std::make_shared<Scope>(scope), output));
  if (output->is_captured) {
    has_captured_generation_ = true;
  } else {
    generation_spans_.emplace_back(begin, output->text.size());
  }
  return flow;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const WithStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  const auto body_scope = std::make_shared<Scope>(scope);
  for (const auto& [target, expr] : statement.variables) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expr, scope));
    RETURN_IF_ERROR(Assign(target, std::move(value), body_scope));
  }
  return ExecuteBody(statement.body, body_scope, output);
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const BreakStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  return Flow::kBreak;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const ContinueStatement& statement, const ScopePtr& scope,
                                                       Output* output) {
  return Flow::kContinue;
}

}  // namespace sluice::engine::jinja
