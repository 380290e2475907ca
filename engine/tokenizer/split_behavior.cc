#include "engine/tokenizer/split_behavior.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

// Joins each span to the one before it where `joins(previous, current)` says so; spans are taken in the given order.
template <typename Joins>
void ForEachJoined(const std::vector<Span>& spans, absl::FunctionRef<void(size_t, size_t)> word, Joins joins) {
  for (size_t i = 0; i < spans.size();) {
    size_t j = i + 1;
    while (j < spans.size() && joins(spans[j - 1], spans[j])) ++j;
    word(spans[i].begin, spans[j - 1].end);
    i = j;
  }
}

}  // namespace

absl::StatusOr<SplitBehavior> SplitBehaviorFromJson(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::string name, node.AsString());
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return node.NotSupported(
      absl::StrCat("\"", name, "\" (expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous)"));
}

void ForEachWord(SplitBehavior behavior, const std::vector<Span>& spans, absl::FunctionRef<void(size_t, size_t)> word) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Span& span : spans) {
        if (!span.delimiter) word(span.begin, span.end);
      }
      return;
    case SplitBehavior::kIsolated:
      for (const Span& span : spans) word(span.begin, span.end);
      return;
    // Of several delimiters in a row only the first joins the word before, and only the last the word after.
    case SplitBehavior::kMergedWithPrevious:
      return ForEachJoined(spans, word, [](const Span& a, const Span& b) { return !a.delimiter && b.delimiter; });
    case SplitBehavior::kMergedWithNext:
      return ForEachJoined(spans, word, [](const Span& a, const Span& b) { return a.delimiter && !b.delimiter; });
    case SplitBehavior::kContiguous:
      return ForEachJoined(spans, word, [](const Span& a, const Span& b) { return a.delimiter == b.delimiter; });
  }
}

}  // namespace sluice::engine
