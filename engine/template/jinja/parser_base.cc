#include "engine/template/jinja/parser_base.h"

#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/limits.h"

namespace sluice::engine::jinja {

bool ParserBase::SkipOperator(std::string_view text) {
  if (!AtOperator(text)) return false;
  Next();
  return true;
}

bool ParserBase::SkipName(std::string_view text) {
  if (!AtName(text)) return false;
  Next();
  return true;
}

absl::Status ParserBase::ExpectOperator(std::string_view text) {
  if (SkipOperator(text)) return absl::OkStatus();
  return Error(Join("expected '", text, "', got ", Describe()));
}

absl::Status ParserBase::ExpectName(std::string_view text) {
  if (SkipName(text)) return absl::OkStatus();
  return Error(Join("expected '", text, "', got ", Describe()));
}

absl::Status ParserBase::ErrorAt(int line, std::string_view what) {
  return TemplateError("chat template line ", std::to_string(line), ": ", what);
}

std::string ParserBase::Describe() const {
  switch (Current().type) {
    case TokenType::kBlockEnd:
      return "the end of the tag";
    case TokenType::kVariableEnd:
      return "the end of the expression";
    case TokenType::kEnd:
      return "the end of the template";
    default:
      return Join("'", Current().text, "'");
  }
}

NameId ParserBase::Intern(const std::string& name) {
  const auto [found, is_new] = name_ids_.try_emplace(name, static_cast<NameId>(names_.size()));
  if (is_new) names_.push_back(name);
  return found->second;
}

absl::Status ParserBase::CheckNesting() const {
  if (nesting_ <= kMaxNesting) return absl::OkStatus();
  return Error(Join("nested deeper than ", std::to_string(kMaxNesting), " levels"));
}

}  // namespace sluice::engine::jinja
