// Parses expressions by recursive descent, in jinja2's order of precedence, loosest first: inline if, or, and, not,
// comparison and in, + -, ~, * / // %, **, unary + -, then attributes, subscripts, calls, filters and tests.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/jinja/ast.h"
#include "engine/template/jinja/parser_base.h"

namespace sluice::engine::jinja {

template <typename Node>
ExprPtr MakeExpr(int line, Node node) {
  return std::make_unique<const Expr>(Expr{line, std::move(node)});
}

class ExpressionParser : public ParserBase {
 protected:
  using ParserBase::ParserBase;

  // `with_condition`: whether an inline `if` belongs to the expression (not so in the iterable of a for loop).
  absl::StatusOr<ExprPtr> ParseExpression(bool with_condition = true);
  // One expression, or several with commas between them as a tuple.
  absl::StatusOr<ExprPtr> ParseTuple(bool with_condition = true);
  absl::StatusOr<CallArguments> ParseCallArguments();
  // `name(arguments)` behind a "|" that is already passed.
  absl::StatusOr<FilterCall> ParseFilterCall();

 private:
  using ParseFunction = absl::StatusOr<ExprPtr> (ExpressionParser::*)();
  // Operators of one level, left to right.
  absl::StatusOr<ExprPtr> ParseBinary(ParseFunction operand,
                                      const std::vector<std::pair<std::string_view, BinaryOperator>>& operators);

  absl::StatusOr<ExprPtr> ParseConditional();
  absl::StatusOr<ExprPtr> ParseOr();
  absl::StatusOr<ExprPtr> ParseAnd();
  absl::StatusOr<ExprPtr> ParseNot();
  absl::StatusOr<ExprPtr> ParseComparison();
  absl::StatusOr<ExprPtr> ParseSum();
  absl::StatusOr<ExprPtr> ParseConcat();
  absl::StatusOr<ExprPtr> ParseProduct();
  absl::StatusOr<ExprPtr> ParsePower();
  absl::StatusOr<ExprPtr> ParseUnary() { return ParseUnary(/*with_filters=*/true); }
  absl::StatusOr<ExprPtr> ParseUnary(bool with_filters);
  absl::StatusOr<ExprPtr> ParsePrimary();
  absl::StatusOr<ExprPtr> ParseName();
  absl::StatusOr<ExprPtr> ParseParentheses();
  absl::StatusOr<ExprPtr> ParseList();
  absl::StatusOr<ExprPtr> ParseDict();
  absl::StatusOr<ExprPtr> ParsePostfix(ExprPtr expr);
  absl::StatusOr<ExprPtr> ParseFiltersAndTests(ExprPtr expr);
  absl::StatusOr<ExprPtr> ParseAttribute(ExprPtr object);
  absl::StatusOr<ExprPtr> ParseSubscript(ExprPtr object);
  absl::StatusOr<ExprPtr> ParseCall(ExprPtr callee);
  absl::StatusOr<ExprPtr> ParseTest(ExprPtr input);
  bool AtTupleEnd() const;
};

}  // namespace sluice::engine::jinja
