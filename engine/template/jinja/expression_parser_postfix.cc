// What follows an operand: attributes, subscripts, calls, filters and tests.
#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/expression_parser.h"

namespace sluice::engine::jinja {

absl::StatusOr<ExprPtr> ExpressionParser::ParsePostfix(ExprPtr expr) {
  while (true) {
    if (AtOperator(".")) {
      ASSIGN_OR_RETURN(expr, ParseAttribute(std::move(expr)));
    } else if (AtOperator("[")) {
      ASSIGN_OR_RETURN(expr, ParseSubscript(std::move(expr)));
    } else if (AtOperator("(")) {
      ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseFiltersAndTests(ExprPtr expr) {
  while (true) {
    const int line = Line();
    if (SkipOperator("|")) {
      ASSIGN_OR_RETURN(FilterCall filter, ParseFilterCall());
      expr = MakeExpr(line, FilterExpr{std::move(expr), std::move(filter)});
    } else if (AtName("is")) {
      ASSIGN_OR_RETURN(expr, ParseTest(std::move(expr)));
    } else if (AtOperator("(")) {
      ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseAttribute(ExprPtr object) {
  const int line = Line();
  Next();
  const Token name = Current();
  if (name.type == TokenType::kInteger) {
    Next();
    return MakeExpr(line, SubscriptExpr{std::move(object), MakeExpr(line, ConstantExpr{Value::Integer(name.text)})});
  }
  if (name.type != TokenType::kName) return Error(Join("expected a name or a number after '.', got ", Describe()));
  Next();
  return MakeExpr(line, AttributeExpr{std::move(object), name.text});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSubscript(ExprPtr object) {
  const int line = Line();
  Next();
  const auto at_part_end = [this] { return AtOperator(":") || AtOperator("]") || AtOperator(","); };
  ExprPtr parts[3];
  if (!at_part_end()) {
    ASSIGN_OR_RETURN(parts[0], ParseExpression());
  }
  if (!AtOperator(":")) {
    if (parts[0] == nullptr) return Error("expected a subscript between '[' and ']'");
    if (AtOperator(",")) {
      ListExpr tuple{{}, true};
      tuple.items.push_back(std::move(parts[0]));
      while (SkipOperator(",")) {
        ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
        tuple.items.push_back(std::move(item));
      }
      parts[0] = MakeExpr(line, std::move(tuple));
    }
    RETURN_IF_ERROR(ExpectOperator("]"));
    return MakeExpr(line, SubscriptExpr{std::move(object), std::move(parts[0])});
  }
  for (int i = 1; i < 3 && SkipOperator(":"); ++i) {
    if (!at_part_end()) {
      ASSIGN_OR_RETURN(parts[i], ParseExpression());
    }
  }
  RETURN_IF_ERROR(ExpectOperator("]"));
  return MakeExpr(line, SliceExpr{std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])});
}

absl::StatusOr<CallArguments> ExpressionParser::ParseCallArguments() {
  RETURN_IF_ERROR(ExpectOperator("("));
  CallArguments arguments;
  bool is_first = true;
  while (!AtOperator(")")) {
    if (!is_first) {
      RETURN_IF_ERROR(ExpectOperator(","));
      if (AtOperator(")")) break;
    }
    is_first = false;
    if (SkipOperator("**")) {
      if (arguments.more_named != nullptr) return Error("a call takes one '**' argument");
      ASSIGN_OR_RETURN(arguments.more_named, ParseExpression());
    } else if (SkipOperator("*")) {
      if (arguments.more_positional != nullptr) return Error("a call takes one '*' argument");
      ASSIGN_OR_RETURN(arguments.more_positional, ParseExpression());
    } else if (Current().type == TokenType::kName && Ahead().type == TokenType::kOperator && Ahead().text == "=") {
      std::string name = Current().text;
      Next();
      Next();
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      arguments.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!arguments.named.empty() || arguments.more_positional != nullptr || arguments.more_named != nullptr) {
        return Error("a positional argument follows a named one");
      }
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      arguments.positional.push_back(std::move(value));
    }
  }
  RETURN_IF_ERROR(ExpectOperator(")"));
  return arguments;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseCall(ExprPtr callee) {
  const int line = Line();
  ASSIGN_OR_RETURN(CallArguments arguments, ParseCallArguments());
  return MakeExpr(line, CallExpr{std::move(callee), std::move(arguments)});
}

absl::StatusOr<FilterCall> ExpressionParser::ParseFilterCall() {
  if (Current().type != TokenType::kName) return Error(Join("expected a filter's name, got ", Describe()));
  FilterCall filter;
  filter.name = Current().text;
  filter.function = FindFilter(filter.name);
  if (filter.function == nullptr && soft_depth_ == 0) return Error(Join("no filter named '", filter.name, "'"));
  Next();
  if (AtOperator("(")) {
    ASSIGN_OR_RETURN(filter.arguments, ParseCallArguments());
  }
  return filter;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTest(ExprPtr input) {
  const int line = Line();
  Next();
  const bool is_negated = SkipName("not");
  if (Current().type != TokenType::kName) return Error(Join("expected a test's name, got ", Describe()));
  TestExpr test;
  test.input = std::move(input);
  test.name = Current().text;
  test.function = FindTest(test.name);
  if (test.function == nullptr && soft_depth_ == 0) return Error(Join("no test named '", test.name, "'"));
  Next();
  const TokenType type = Current().type;
  const bool is_literal = type == TokenType::kString || type == TokenType::kInteger || type == TokenType::kFloat;
  const bool is_bracket = AtOperator("[") || AtOperator("{");
  const bool is_name = type == TokenType::kName && !AtName("else") && !AtName("or") && !AtName("and");
  if (AtOperator("(")) {
    ASSIGN_OR_RETURN(test.arguments, ParseCallArguments());
  } else if (is_literal || is_bracket || is_name) {
    if (AtName("is")) return Error("tests cannot be chained with 'is'");
    ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test.arguments.positional.push_back(std::move(argument));
  }
  ExprPtr expr = MakeExpr(line, std::move(test));
  if (!is_negated) return expr;
  return MakeExpr(line, UnaryExpr{UnaryOperator::kNot, std::move(expr)});
}

}  // namespace sluice::engine::jinja
