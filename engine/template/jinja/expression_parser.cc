// Operators and operands, from the loosest to the tightest. What follows an operand is in expression_parser_postfix.cc.
#include "engine/template/jinja/expression_parser.h"

#include <charconv>
#include <optional>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"

namespace sluice::engine::jinja {

absl::StatusOr<ExprPtr> ExpressionParser::ParseExpression(bool with_condition) {
  const Nesting nesting(&nesting_);
  RETURN_IF_ERROR(CheckNesting());
  return with_condition ? ParseConditional() : ParseOr();
}

bool ExpressionParser::AtTupleEnd() const {
  const TokenType type = Current().type;
  return type == TokenType::kVariableEnd || type == TokenType::kBlockEnd || AtOperator(")");
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseTuple(bool with_condition) {
  const int line = Line();
  ASSIGN_OR_RETURN(ExprPtr first, ParseExpression(with_condition));
  if (!AtOperator(",")) return first;
  ListExpr tuple{{}, true};
  tuple.items.push_back(std::move(first));
  while (SkipOperator(",") && !AtTupleEnd()) {
    ASSIGN_OR_RETURN(ExprPtr item, ParseExpression(with_condition));
    tuple.items.push_back(std::move(item));
  }
  return MakeExpr(line, std::move(tuple));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseConditional() {
  const int line = Line();
  ASSIGN_OR_RETURN(ExprPtr expr, ParseOr());
  while (AtName("if")) {
    Next();
    ++soft_depth_;
    ConditionalExpr conditional;
    ASSIGN_OR_RETURN(conditional.condition, ParseOr());
    conditional.value = std::move(expr);
    if (SkipName("else")) {
      ASSIGN_OR_RETURN(conditional.otherwise, ParseExpression());
    }
    --soft_depth_;
    expr = MakeExpr(line, std::move(conditional));
  }
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseOr() {
  const int line = Line();
  ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (SkipName("or")) {
    ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    left = MakeExpr(line, LogicalExpr{false, std::move(left), std::move(right)});
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseAnd() {
  const int line = Line();
  ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (SkipName("and")) {
    ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    left = MakeExpr(line, LogicalExpr{true, std::move(left), std::move(right)});
  }
  return left;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseNot() {
  if (!AtName("not")) return ParseComparison();
  const Nesting nesting(&nesting_);
  RETURN_IF_ERROR(CheckNesting());
  const int line = Line();
  Next();
  ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  return MakeExpr(line, UnaryExpr{UnaryOperator::kNot, std::move(operand)});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseComparison() {
  static constexpr std::pair<std::string_view, ComparisonOperator> kOperators[] = {
      {"==", ComparisonOperator::kEqual},  {"!=", ComparisonOperator::kNotEqual},
      {"<", ComparisonOperator::kLess},    {"<=", ComparisonOperator::kLessEqual},
      {">", ComparisonOperator::kGreater}, {">=", ComparisonOperator::kGreaterEqual},
  };
  const int line = Line();
  ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  ComparisonExpr comparison;
  while (true) {
    std::optional<ComparisonOperator> op;
    for (const auto& [text, candidate] : kOperators) {
      if (AtOperator(text)) op = candidate;
    }
    if (AtName("in")) op = ComparisonOperator::kIn;
    if (AtName("not") && Ahead().type == TokenType::kName && Ahead().text == "in") {
      op = ComparisonOperator::kNotIn;
      Next();
    }
    if (!op.has_value()) break;
    Next();
    ASSIGN_OR_RETURN(ExprPtr operand, ParseSum());
    comparison.rest.emplace_back(*op, std::move(operand));
  }
  if (comparison.rest.empty()) return first;
  comparison.first = std::move(first);
  return MakeExpr(line, std::move(comparison));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseBinary(
    ParseFunction operand, const std::vector<std::pair<std::string_view, BinaryOperator>>& operators) {
  const int line = Line();
  ASSIGN_OR_RETURN(ExprPtr left, (this->*operand)());
  while (true) {
    std::optional<BinaryOperator> op;
    for (const auto& [text, candidate] : operators) {
      if (AtOperator(text)) op = candidate;
    }
    if (!op.has_value()) return left;
    Next();
    ASSIGN_OR_RETURN(ExprPtr right, (this->*operand)());
    left = MakeExpr(line, BinaryExpr{*op, std::move(left), std::move(right)});
  }
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseSum() {
  return ParseBinary(&ExpressionParser::ParseConcat, {{"+", BinaryOperator::kAdd}, {"-", BinaryOperator::kSubtract}});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseConcat() {
  const int line = Line();
  ASSIGN_OR_RETURN(ExprPtr first, ParseProduct());
  if (!AtOperator("~")) return first;
  ConcatExpr concat;
  concat.parts.push_back(std::move(first));
  while (SkipOperator("~")) {
    ASSIGN_OR_RETURN(ExprPtr part, ParseProduct());
    concat.parts.push_back(std::move(part));
  }
  return MakeExpr(line, std::move(concat));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseProduct() {
  return ParseBinary(&ExpressionParser::ParsePower, {{"*", BinaryOperator::kMultiply},
                                                     {"/", BinaryOperator::kDivide},
                                                     {"//", BinaryOperator::kFloorDivide},
                                                     {"%", BinaryOperator::kModulo}});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePower() {
  return ParseBinary(&ExpressionParser::ParseUnary, {{"**", BinaryOperator::kPower}});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseUnary(bool with_filters) {
  const Nesting nesting(&nesting_);
  RETURN_IF_ERROR(CheckNesting());
  const int line = Line();
  ExprPtr expr;
  if (SkipOperator("-")) {
    ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary(false));
    expr = MakeExpr(line, UnaryExpr{UnaryOperator::kNegate, std::move(operand)});
  } else if (SkipOperator("+")) {
    ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary(false));
    expr = MakeExpr(line, UnaryExpr{UnaryOperator::kPositive, std::move(operand)});
  } else {
    ASSIGN_OR_RETURN(expr, ParsePrimary());
  }
  ASSIGN_OR_RETURN(expr, ParsePostfix(std::move(expr)));
  if (!with_filters) return expr;
  return ParseFiltersAndTests(std::move(expr));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParsePrimary() {
  const int line = Line();
  const std::string& text = Current().text;
  switch (Current().type) {
    case TokenType::kName:
      return ParseName();
    case TokenType::kString: {
      std::string joined;  // adjacent literals are one
      for (; Current().type == TokenType::kString; Next()) joined.append(Current().text);
      return MakeExpr(line, ConstantExpr{Value::String(std::move(joined))});
    }
    case TokenType::kInteger: {
      ExprPtr constant = MakeExpr(line, ConstantExpr{Value::Integer(text)});
      Next();
      return constant;
    }
    case TokenType::kFloat: {
      double number = 0.0;
      std::from_chars(text.data(), text.data() + text.size(), number);
      Next();
      return MakeExpr(line, ConstantExpr{Value::Float(number)});
    }
    default:
      break;
  }
  if (AtOperator("(")) return ParseParentheses();
  if (AtOperator("[")) return ParseList();
  if (AtOperator("{")) return ParseDict();
  return Error(Join("expected an expression, got ", Describe()));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseName() {
  const int line = Line();
  const std::string name = Current().text;
  Next();
  if (name == "true" || name == "True") return MakeExpr(line, ConstantExpr{Value::Bool(true)});
  if (name == "false" || name == "False") return MakeExpr(line, ConstantExpr{Value::Bool(false)});
  if (name == "none" || name == "None") return MakeExpr(line, ConstantExpr{Value::None()});
  for (Signature* macro : enclosing_macros_) {
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
    macro->uses_caller |= name == "caller";
  }
  return MakeExpr(line, NameExpr{Intern(name)});
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseParentheses() {
  const int line = Line();
  Next();
  if (SkipOperator(")")) return MakeExpr(line, ListExpr{{}, true});
  ASSIGN_OR_RETURN(ExprPtr expr, ParseTuple());
  RETURN_IF_ERROR(ExpectOperator(")"));
  return expr;
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseList() {
  const int line = Line();
  Next();
  ListExpr list{{}, false};
  while (!AtOperator("]")) {
    if (!list.items.empty()) {
      RETURN_IF_ERROR(ExpectOperator(","));
      if (AtOperator("]")) break;
    }
    ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    list.items.push_back(std::move(item));
  }
  RETURN_IF_ERROR(ExpectOperator("]"));
  return MakeExpr(line, std::move(list));
}

absl::StatusOr<ExprPtr> ExpressionParser::ParseDict() {
  const int line = Line();
  Next();
  DictExpr dict;
  while (!AtOperator("}")) {
    if (!dict.items.empty()) {
      RETURN_IF_ERROR(ExpectOperator(","));
      if (AtOperator("}")) break;
    }
    ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    RETURN_IF_ERROR(ExpectOperator(":"));
    ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    dict.items.emplace_back(std::move(key), std::move(value));
  }
  RETURN_IF_ERROR(ExpectOperator("}"));
  return MakeExpr(line, std::move(dict));
}

}  // namespace sluice::engine::jinja
