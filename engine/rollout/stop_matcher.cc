#include "engine/rollout/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace sluice::engine {

StopMatcher::StopMatcher(const Tokenizer& tokenizer, absl::Span<const int32_t> prompt_ids,
                         std::vector<std::string> stop, const StopMatcherOptions& options)
    : decoder_(tokenizer, options.decode, prompt_ids), stop_(std::move(stop)), options_(options) {
  // Longest first, so that of those that end together the longest is found first.
  std::stable_sort(stop_.begin(), stop_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

bool StopMatcher::Add(const std::string& piece, bool armed) {
  const size_t old_size = text_.size();
  text_ += piece;
  if (!armed) return false;
  for (size_t end = old_size + 1; end <= text_.size(); ++end) {
    const std::string_view until = std::string_view(text_).substr(0, end);
    for (const std::string& stop : stop_) {
      if (!until.ends_with(stop)) continue;
      matched_ = stop;
      finished_ = true;
      text_.resize(options_.include_stop ? end : end - stop.size());
      return true;
    }
  }
  return false;
}

bool StopMatcher::Push(int32_t id, bool armed) { return Add(decoder_.Push(id), armed); }

bool StopMatcher::Finish(bool armed) {
  const bool matched = Add(decoder_.Flush(), armed);
  finished_ = true;
  return matched;
}

std::string_view StopMatcher::safe_text() const {
  if (finished_) return text_;
  // The longest end of the text that a stop string begins with is held back.
  size_t held = 0;
  for (const std::string& stop : stop_) {
    for (size_t size = std::min(stop.size() - 1, text_.size()); size > held; --size) {
      if (text_.ends_with(std::string_view(stop).substr(0, size))) held = size;
    }
  }
  return std::string_view(text_).substr(0, text_.size() - held);
}

}  // namespace sluice::engine
