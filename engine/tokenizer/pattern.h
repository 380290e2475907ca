// What a Split or Replace looks for: a literal or a regular expression.
//
// tokenizer.json holds Oniguruma expressions (Ruby syntax). They are translated to PCRE2 with UTF and Unicode
// properties on: \s, \S, \w, \d, \h get Oniguruma's meaning, ^ and $ are per line. What has another meaning in PCRE2
// and is not translated is refused. Classes such as \p{L} follow PCRE2's Unicode version, so letters added to Unicode
// since may differ; the split patterns of the common models do not come here (split_rules.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/json_node.h"

namespace sluice::engine {

// Immutable; const methods may be called from any thread.
class Pattern {
 public:
  // Reads {"String": literal} or {"Regex": expression}.
  static absl::StatusOr<Pattern> FromJson(const JsonNode& node);
  static absl::StatusOr<Pattern> Literal(std::string literal);
  static absl::StatusOr<Pattern> Regex(std::string_view expression);

  // Calls match(begin, end) for each match, left to right and without overlap. After an empty match the search goes on
  // one character later; an empty match right after another match is none. REQUIRES: text is valid UTF-8.
  void ForEachMatch(std::string_view text, absl::FunctionRef<void(size_t begin, size_t end)> match) const;

  // The expression as given, empty for a literal.
  const std::string& expression() const { return expression_; }

 private:
  struct Compiled;

  std::string literal_;
  std::string expression_;
  std::shared_ptr<const Compiled> regex_;
};

}  // namespace sluice::engine
