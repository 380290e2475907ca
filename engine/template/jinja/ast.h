// A parsed template. Immutable once parsed; the interpreter walks it.
//
// Names of variables are numbers: the place in Program::names. The interpreter's scopes look them up by number.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/template/jinja/filters.h"
#include "engine/template/jinja/value.h"
#include "engine/template/jinja/value_tests.h"

namespace sluice::engine::jinja {

struct Expr;
struct Statement;
using ExprPtr = std::unique_ptr<const Expr>;
using Body = std::vector<Statement>;
using NameId = int;

// ---- expressions ----

struct ConstantExpr {
  Value value;
};
struct NameExpr {
  NameId name;
};
struct ListExpr {
  std::vector<ExprPtr> items;
  bool is_tuple;
};
struct DictExpr {
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};
struct AttributeExpr {  // object.name
  ExprPtr object;
  std::string name;
};
struct SubscriptExpr {  // object[index]
  ExprPtr object;
  ExprPtr index;
};
struct SliceExpr {  // object[start:stop:step]; each may be null
  ExprPtr object;
  ExprPtr start;
  ExprPtr stop;
  ExprPtr step;
};
struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr more_positional;  // *x; may be null
  ExprPtr more_named;       // **x; may be null
};
struct CallExpr {
  ExprPtr callee;
  CallArguments arguments;
};
struct FilterCall {
  std::string name;
  FilterFunction function;  // null: an unknown filter in a branch that may never run
  CallArguments arguments;
};
struct FilterExpr {  // input | filter
  ExprPtr input;
  FilterCall filter;
};
struct TestExpr {  // input is test
  ExprPtr input;
  std::string name;
  TestFunction function;  // null: an unknown test in a branch that may never run
  CallArguments arguments;
};
enum class UnaryOperator { kNot, kNegate, kPositive };
struct UnaryExpr {
  UnaryOperator op;
  ExprPtr operand;
};
enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct BinaryExpr {
  BinaryOperator op;
  ExprPtr left;
  ExprPtr right;
};
struct LogicalExpr {  // `and`, `or`: yields one of its operands
  bool is_and;
  ExprPtr left;
  ExprPtr right;
};
enum class ComparisonOperator { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct ComparisonExpr {  // a < b < c
  ExprPtr first;
  std::vector<std::pair<ComparisonOperator, ExprPtr>> rest;
};
struct ConcatExpr {  // a ~ b ~ c
  std::vector<ExprPtr> parts;
};
struct ConditionalExpr {  // value if condition else otherwise
  ExprPtr condition;
  ExprPtr value;
  ExprPtr otherwise;  // may be null
};

struct Expr {
  int line;
  std::variant<ConstantExpr, NameExpr, ListExpr, DictExpr, AttributeExpr, SubscriptExpr, SliceExpr, CallExpr,
               FilterExpr, TestExpr, UnaryExpr, BinaryExpr, LogicalExpr, ComparisonExpr, ConcatExpr, ConditionalExpr>
      node;
};

// ---- statements ----

struct Target {  // what an assignment writes to
  int line = 0;
  NameId name = 0;
  std::string attribute;  // not empty: the attribute of the namespace in `name`
  bool is_tuple = false;  // then `elements` are the targets
  std::vector<Target> elements;
};

struct Signature {  // of a macro or a call block
  std::vector<NameId> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  // The body reads these names, so the call may pass what they stand for.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct TextStatement {
  std::string text;
};
struct OutputStatement {  // {{ value }}
  ExprPtr value;
};
struct IfStatement {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct ForStatement {
  Target target;
  ExprPtr iterable;
  ExprPtr condition;  // {% for x in y if condition %}; may be null
  Body body;
  Body otherwise;  // where no item came
};
struct SetStatement {
  Target target;
  ExprPtr value;
};
struct SetBlockStatement {  // {% set target | filter %} body {% endset %}
  Target target;
  std::vector<FilterCall> filters;
  Body body;
};
struct MacroStatement {
  NameId name;
  Signature signature;
  Body body;
};
struct CallBlockStatement {  // {% call(x) macro(y) %} body {% endcall %}
  Signature signature;
  ExprPtr call;  // a CallExpr
  Body body;
};
struct FilterBlockStatement {
  std::vector<FilterCall> filters;
  Body body;
};
struct GenerationStatement {
  Body body;
};
struct WithStatement {
  std::vector<std::pair<Target, ExprPtr>> variables;
  Body body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  int line;
  std::variant<TextStatement, OutputStatement, IfStatement, ForStatement, SetStatement, SetBlockStatement,
               MacroStatement, CallBlockStatement, FilterBlockStatement, GenerationStatement, WithStatement,
               BreakStatement, ContinueStatement>
      node;
};

struct Program {
  std::vector<std::string> names;
  Body body;
  bool has_generation = false;
  // The names with a meaning to the interpreter.
  NameId loop = 0;
  NameId varargs = 0;
  NameId kwargs = 0;
  NameId caller = 0;
};

}  // namespace sluice::engine::jinja
