// What becomes of the delimiters when a piece is split at them.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/json_node.h"

namespace sluice::engine {

enum class SplitBehavior {
  kRemoved,             // dropped
  kIsolated,            // a word each
  kMergedWithPrevious,  // the end of the word before
  kMergedWithNext,      // the start of the word after
  kContiguous,          // neighbouring delimiters make one word
};

absl::StatusOr<SplitBehavior> SplitBehaviorFromJson(const JsonNode& node);

// A part of a piece: a delimiter, or what lies between two. The spans of a piece cover it in order.
struct Span {
  size_t begin;
  size_t end;
  bool delimiter;
};

// Calls word(begin, end) for each word that the behaviour makes of the spans.
void ForEachWord(SplitBehavior behavior, const std::vector<Span>& spans, absl::FunctionRef<void(size_t, size_t)> word);

}  // namespace sluice::engine
