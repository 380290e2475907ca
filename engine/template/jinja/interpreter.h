// Runs a Program: walks its tree with the variables of one rendering.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/template/jinja/ast.h"
#include "engine/template/jinja/runtime.h"
#include "engine/template/jinja/scope.h"

namespace sluice::engine::jinja {

// Where statements write. A macro, call, filter or set block writes to an output of its own.
struct Output {
  std::string text;
  bool is_captured = false;
};

// Used by one rendering, on one thread. The program and the runtime outlive it.
class Interpreter {
 public:
  Interpreter(const Program& program, Runtime& runtime) : program_(program), runtime_(runtime) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Runs the whole template with the variables in `root`. Call it once.
  absl::Status Run(const ScopePtr& root, Output* output);

  // [begin, end) in the output's text of what each {% generation %} block wrote there.
  const std::vector<std::pair<size_t, size_t>>& generation_spans() const { return generation_spans_; }
  // Such a block ran inside a captured output.
  bool has_captured_generation() const { return has_captured_generation_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Macro;
  class DepthGuard;

  absl::StatusOr<Flow> ExecuteBody(const Body& body, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> ExecuteStatement(const Statement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const TextStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const OutputStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const IfStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const ForStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const SetStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const SetBlockStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const MacroStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const CallBlockStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const FilterBlockStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const GenerationStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const WithStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const BreakStatement& statement, const ScopePtr& scope, Output* output);
  absl::StatusOr<Flow> Execute(const ContinueStatement& statement, const ScopePtr& scope, Output* output);

  absl::StatusOr<Value> LoopItems(const ForStatement& statement, const ScopePtr& scope);
  absl::Status Assign(const Target& target, Value value, const ScopePtr& scope);
  absl::Status Write(std::string_view text, Output* output);
  absl::StatusOr<Value> ApplyFilters(const std::vector<FilterCall>& filters, Value value, const ScopePtr& scope);
  // A macro or caller with the variables around its definition.
  Value MakeMacro(std::string name, const Signature& signature, const Body& body, const ScopePtr& scope);

  absl::StatusOr<Value> Evaluate(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const ConstantExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const NameExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const ListExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const DictExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const AttributeExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const SubscriptExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const SliceExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const CallExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const FilterExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const TestExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const UnaryExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const BinaryExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const LogicalExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const ComparisonExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const ConcatExpr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> Evaluate(const ConditionalExpr& expr, const ScopePtr& scope);

  absl::StatusOr<Arguments> EvaluateArguments(const CallArguments& arguments, const ScopePtr& scope);
  absl::StatusOr<Value> Call(const CallExpr& expr, Arguments arguments, const ScopePtr& scope);
  // Uses up steps for the size of a value that was made, so that steps bound the work on large texts and lists, too.
  absl::StatusOr<Value> Charge(absl::StatusOr<Value> value);
  absl::StatusOr<Value> ApplyFilter(const FilterCall& filter, const Value& input, const ScopePtr& scope);

  const Program& program_;
  Runtime& runtime_;
  int stack_depth_ = 0;
  int call_depth_ = 0;
  // Scopes that macros hold on to; a macro and its scope hold each other until these are cleared.
  std::vector<ScopePtr> captured_scopes_;
  std::vector<std::pair<size_t, size_t>> generation_spans_;
  bool has_captured_generation_ = false;
};

// The status with "chat template line N: " in front, unless it says a line already. OK stays OK.
absl::Status AtLine(int line, const absl::Status& status);

}  // namespace sluice::engine::jinja
