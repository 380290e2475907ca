#include "engine/template/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/expression_parser.h"

namespace sluice::engine::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  absl::StatusOr<std::unique_ptr<const Program>> Run() {
    auto program = std::make_unique<Program>();
    ASSIGN_OR_RETURN(program->body, ParseBody({}));
    program->has_generation = has_generation_;
    program->loop = Intern("loop");
    program->varargs = Intern("varargs");
    program->kwargs = Intern("kwargs");
    program->caller = Intern("caller");
    program->names = names();
    return program;
  }

 private:
  using EndNames = std::initializer_list<std::string_view>;

  // Statements up to the tag that begins with one of `ends`, or the end of the template where there are none. The end's
  // name is then the current token.
  absl::StatusOr<Body> ParseBody(EndNames ends) {
    const Nesting nesting(&nesting_);
    RETURN_IF_ERROR(CheckNesting());
    Body body;
    while (true) {
      const int line = Line();
      switch (Current().type) {
        case TokenType::kText:
          body.push_back({line, TextStatement{Current().text}});
          Next();
          break;
        case TokenType::kVariableBegin: {
          Next();
          ASSIGN_OR_RETURN(ExprPtr value, ParseTuple());
          if (Current().type != TokenType::kVariableEnd) return Error(Join("expected '}}', got ", Describe()));
          Next();
          body.push_back({line, OutputStatement{std::move(value)}});
          break;
        }
        case TokenType::kBlockBegin: {
          Next();
          if (Current().type != TokenType::kName) return Error(Join("expected a tag's name, got ", Describe()));
          if (std::find(ends.begin(), ends.end(), Current().text) != ends.end()) return body;
          ASSIGN_OR_RETURN(Statement statement, ParseTag());
          body.push_back(std::move(statement));
          break;
        }
        default:
          if (ends.size() == 0) return body;
          return Error(Join("the template ends, but '", *ends.begin(), "' was expected"));
      }
    }
  }

  absl::Status ExpectTagEnd() {
    if (Current().type != TokenType::kBlockEnd) return Error(Join("expected '%}', got ", Describe()));
    Next();
    return absl::OkStatus();
  }

  // `%}` body and the tag `end`.
  absl::StatusOr<Body> ParseBlock(std::string_view end) {
    SkipOperator(":");
    RETURN_IF_ERROR(ExpectTagEnd());
    ASSIGN_OR_RETURN(Body body, ParseBody({end}));
    Next();
    RETURN_IF_ERROR(ExpectTagEnd());
    return body;
  }

  // The body of a macro or call block is a function of its own: no `break` out of it.
  absl::StatusOr<Body> ParseFunctionBody(std::string_view end) {
    const int loop_depth = std::exchange(loop_depth_, 0);
    ASSIGN_OR_RETURN(Body body, ParseBlock(end));
    loop_depth_ = loop_depth;
    return body;
  }

  absl::StatusOr<Statement> ParseTag() {
    const std::string name = Current().text;
    const int line = Line();
    Next();
    if (name == "if") return ParseIf(line);
    if (name == "for") return ParseFor(line);
    if (name == "set") return ParseSet(line);
    if (name == "macro") return ParseMacro(line);
    if (name == "call") return ParseCallBlock(line);
    if (name == "filter") return ParseFilterBlock(line);
    if (name == "with") return ParseWith(line);
    if (name == "generation") {
      has_generation_ = true;
      ASSIGN_OR_RETURN(Body body, ParseFunctionBody("endgeneration"));
      return Statement{line, GenerationStatement{std::move(body)}};
    }
    if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) return ErrorAt(line, Join("'", name, "' outside of a loop"));
      RETURN_IF_ERROR(ExpectTagEnd());
      if (name == "break") return Statement{line, BreakStatement{}};
      return Statement{line, ContinueStatement{}};
    }
    return ErrorAt(line, Join("unknown tag '", name, "'"));
  }

  absl::StatusOr<Statement> ParseIf(int line) {
    ++soft_depth_;
    IfStatement statement;
    bool has_else = false;
    while (!has_else) {
      ASSIGN_OR_RETURN(ExprPtr condition, ParseTuple(/*with_condition=*/false));
      SkipOperator(":");
      RETURN_IF_ERROR(ExpectTagEnd());
      ASSIGN_OR_RETURN(Body body, ParseBody({"endif", "else", "elif"}));
      statement.branches.emplace_back(std::move(condition), std::move(body));
      if (SkipName("elif")) continue;
      has_else = SkipName("else");
      break;
    }
    if (has_else) {
      ASSIGN_OR_RETURN(statement.otherwise, ParseBlock("endif"));
    } else {
      RETURN_IF_ERROR(ExpectName("endif"));
      RETURN_IF_ERROR(ExpectTagEnd());
    }
    --soft_depth_;
    return Statement{line, std::move(statement)};
  }

  absl::StatusOr<Statement> ParseFor(int line) {
    ForStatement statement;
    ASSIGN_OR_RETURN(statement.target, ParseTarget(/*with_attribute=*/false));
    RETURN_IF_ERROR(ExpectName("in"));
    ASSIGN_OR_RETURN(statement.iterable, ParseTuple(/*with_condition=*/false));
    if (SkipName("if")) {
      ASSIGN_OR_RETURN(statement.condition, ParseExpression());
    }
    if (AtName("recursive")) return Error("recursive loops are not supported");
    SkipOperator(":");
    RETURN_IF_ERROR(ExpectTagEnd());
    ++loop_depth_;
    ASSIGN_OR_RETURN(statement.body, ParseBody({"endfor", "else"}));
    --loop_depth_;
    if (SkipName("else")) {
      ASSIGN_OR_RETURN(statement.otherwise, ParseBlock("endfor"));
    } else {
      Next();
      RETURN_IF_ERROR(ExpectTagEnd());
    }
    return Statement{line, std::move(statement)};
  }

  absl::StatusOr<Target> ParseOneTarget(bool with_attribute) {
    Target target;
    target.line = Line();
    if (SkipOperator("(")) {
      ASSIGN_OR_RETURN(target, ParseTarget(with_attribute));
      RETURN_IF_ERROR(ExpectOperator(")"));
      return target;
    }
    if (Current().type != TokenType::kName) return Error(Join("expected a name to assign to, got ", Describe()));
    const std::string name = Current().text;
    for (const std::string_view constant : {"true", "True", "false", "False", "none", "None"}) {
      if (name == constant) return Error(Join("cannot assign to '", name, "'"));
    }
    target.name = Intern(name);
    Next();
    if (with_attribute && SkipOperator(".")) {
      if (Current().type != TokenType::kName) return Error(Join("expected an attribute's name, got ", Describe()));
      target.attribute = Current().text;
      Next();
    }
    return target;
  }

  absl::StatusOr<Target> ParseTarget(bool with_attribute) {
    const Nesting nesting(&nesting_);
    RETURN_IF_ERROR(CheckNesting());
    const int line = Line();
    ASSIGN_OR_RETURN(Target first, ParseOneTarget(with_attribute));
    if (!AtOperator(",")) return first;
    Target tuple;
    tuple.line = line;
    tuple.is_tuple = true;
    tuple.elements.push_back(std::move(first));
    while (SkipOperator(",")) {
      if (AtName("in") || AtOperator("=") || AtOperator(")")) break;
      ASSIGN_OR_RETURN(Target element, ParseOneTarget(with_attribute));
      tuple.elements.push_back(std::move(element));
    }
    return tuple;
  }

  absl::StatusOr<std::vector<FilterCall>> ParseFilters() {
    std::vector<FilterCall> filters;
    while (SkipOperator("|")) {
      ASSIGN_OR_RETURN(FilterCall filter, ParseFilterCall());
      filters.push_back(std::move(filter));
    }
    return filters;
  }

  absl::StatusOr<Statement> ParseSet(int line) {
    ASSIGN_OR_RETURN(Target target, ParseTarget(/*with_attribute=*/true));
    if (SkipOperator("=")) {
      ASSIGN_OR_RETURN(ExprPtr value, ParseTuple());
      RETURN_IF_ERROR(ExpectTagEnd());
      return Statement{line, SetStatement{std::move(target), std::move(value)}};
    }
    ASSIGN_OR_RETURN(std::vector<FilterCall> filters, ParseFilters());
    ASSIGN_OR_RETURN(Body body, ParseBlock("endset"));
    return Statement{line, SetBlockStatement{std::move(target), std::move(filters), std::move(body)}};
  }

  absl::Status ParseSignature(Signature* signature) {
    RETURN_IF_ERROR(ExpectOperator("("));
    while (!AtOperator(")")) {
      if (!signature->parameters.empty()) RETURN_IF_ERROR(ExpectOperator(","));
      if (Current().type != TokenType::kName) return Error(Join("expected a parameter's name, got ", Describe()));
      signature->parameters.push_back(Intern(Current().text));
      Next();
      if (SkipOperator("=")) {
        ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
        signature->defaults.push_back(std::move(value));
      } else if (!signature->defaults.empty()) {
        return Error("a parameter without a default follows one with a default");
      }
    }
    return ExpectOperator(")");
  }

  // While it lives, names in the body are noted in the signature.
  class MacroScope {
   public:
    MacroScope(std::vector<Signature*>* macros, Signature* signature) : macros_(*macros) {
      macros_.push_back(signature);
    }
    ~MacroScope() { macros_.pop_back(); }
    MacroScope(const MacroScope&) = delete;
    MacroScope& operator=(const MacroScope&) = delete;

   private:
    std::vector<Signature*>& macros_;
  };

  absl::StatusOr<Statement> ParseMacro(int line) {
    if (Current().type != TokenType::kName) return Error(Join("expected a macro's name, got ", Describe()));
    MacroStatement statement;
    statement.name = Intern(Current().text);
    Next();
    RETURN_IF_ERROR(ParseSignature(&statement.signature));
    const MacroScope scope(&enclosing_macros_, &statement.signature);
    ASSIGN_OR_RETURN(statement.body, ParseFunctionBody("endmacro"));
    return Statement{line, std::move(statement)};
  }

  absl::StatusOr<Statement> ParseCallBlock(int line) {
    CallBlockStatement statement;
    if (AtOperator("(")) RETURN_IF_ERROR(ParseSignature(&statement.signature));
    ASSIGN_OR_RETURN(statement.call, ParseExpression());
    if (!std::holds_alternative<CallExpr>(statement.call->node)) return ErrorAt(line, "expected a call after 'call'");
    const MacroScope scope(&enclosing_macros_, &statement.signature);
    ASSIGN_OR_RETURN(statement.body, ParseFunctionBody("endcall"));
    return Statement{line, std::move(statement)};
  }

  absl::StatusOr<Statement> ParseFilterBlock(int line) {
    FilterBlockStatement statement;
    ASSIGN_OR_RETURN(FilterCall first, ParseFilterCall());
    ASSIGN_OR_RETURN(statement.filters, ParseFilters());
    statement.filters.insert(statement.filters.begin(), std::move(first));
    ASSIGN_OR_RETURN(statement.body, ParseBlock("endfilter"));
    return Statement{line, std::move(statement)};
  }

  absl::StatusOr<Statement> ParseWith(int line) {
    WithStatement statement;
    while (Current().type != TokenType::kBlockEnd) {
      if (!statement.variables.empty()) RETURN_IF_ERROR(ExpectOperator(","));
      ASSIGN_OR_RETURN(Target target, ParseOneTarget(/*with_attribute=*/false));
      RETURN_IF_ERROR(ExpectOperator("="));
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      statement.variables.emplace_back(std::move(target), std::move(value));
    }
    ASSIGN_OR_RETURN(statement.body, ParseBlock("endwith"));
    return Statement{line, std::move(statement)};
  }

  int loop_depth_ = 0;
  bool has_generation_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Program>> Parse(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace sluice::engine::jinja
