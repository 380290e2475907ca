// Hand-written scanners for the split patterns of the common models. They do what the regular expressions do, with the
// character classes of char_class.h, several times faster than a regex engine. Every pattern here matches everywhere:
// the pieces it yields cover the text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace sluice::engine {

// The expression of ByteLevel's use_regex (GPT-2, SmolLM2).
extern const std::string_view kGpt2Expression;
// Qwen2, Qwen2.5, Qwen3: one digit per piece.
extern const std::string_view kQwen2Expression;
// Llama 3: up to three digits per piece.
extern const std::string_view kLlama3Expression;

enum class SplitRule { kGpt2, kQwen2, kLlama3 };

// The rule for a regular expression, if there is one.
std::optional<SplitRule> SplitRuleFor(std::string_view expression);

// Calls piece(begin, end) for the matches in order; they cover the text. REQUIRES: text is valid UTF-8.
void ForEachPiece(SplitRule rule, std::string_view text, absl::FunctionRef<void(size_t begin, size_t end)> piece);

}  // namespace sluice::engine
