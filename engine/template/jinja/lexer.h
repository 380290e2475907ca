// Cuts a template into tokens, with jinja2's white-space rules: trim_blocks and lstrip_blocks on, `-` and `+` marks on
// tags, line endings made one newline, one final newline dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::engine::jinja {

enum class TokenType {
  kText,  // output as it is
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,   // escapes are resolved
  kInteger,  // decimal digits, whatever the source's base
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;
  int line = 1;
};

// The last token is kEnd. Comments are gone; raw blocks are text.
// kInvalidArgument "chat template line N: ..." for what cannot be cut.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace sluice::engine::jinja
