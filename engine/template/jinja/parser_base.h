// What the expression parser and the statement parser share: the tokens, the names, the nesting guard.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/template/jinja/ast.h"
#include "engine/template/jinja/lexer.h"

namespace sluice::engine::jinja {

class ParserBase {
 protected:
  explicit ParserBase(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Current() const { return tokens_[position_]; }
  const Token& Ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  int Line() const { return Current().line; }
  void Next() {
    if (position_ + 1 < tokens_.size()) ++position_;
  }

  bool AtOperator(std::string_view text) const { return Is(TokenType::kOperator, text); }
  bool AtName(std::string_view text) const { return Is(TokenType::kName, text); }
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  absl::Status ExpectOperator(std::string_view text);
  absl::Status ExpectName(std::string_view text);

  absl::Status Error(std::string_view what) const { return ErrorAt(Line(), what); }
  static absl::Status ErrorAt(int line, std::string_view what);
  // What the current token is, for messages: "'endif'", "end of the tag".
  std::string Describe() const;

  NameId Intern(const std::string& name);
  const std::vector<std::string>& names() const { return names_; }

  // Counts one level of nesting for its lifetime.
  class Nesting {
   public:
    explicit Nesting(int* depth) : depth_(*depth) { ++depth_; }
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    int& depth_;
  };
  absl::Status CheckNesting() const;

  int nesting_ = 0;
  // Inside {% if %} and inline if, an unknown filter or test is an error only when it runs.
  int soft_depth_ = 0;
  // Signatures of the macros around the current place.
  std::vector<Signature*> enclosing_macros_;

 private:
  bool Is(TokenType type, std::string_view text) const { return Current().type == type && Current().text == text; }

  std::vector<Token> tokens_;
  size_t position_ = 0;
  std::vector<std::string> names_;
  std::map<std::string, NameId> name_ids_;
};

}  // namespace sluice::engine::jinja
