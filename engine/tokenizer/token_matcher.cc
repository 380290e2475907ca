#include "engine/tokenizer/token_matcher.h"

namespace sluice::engine {

bool TokenMatcher::Add(std::string_view content, int32_t value) {
  int32_t node = 0;
  for (size_t i = 0; i < content.size(); ++i) {
    const auto byte = static_cast<unsigned char>(content[i]);
    int32_t& child = i == 0 ? roots_[byte] : children_[static_cast<uint64_t>(node) << 8 | byte];
    if (child == 0) {
      child = static_cast<int32_t>(values_.size());
      values_.push_back(kNoValue);
    }
    node = child;
  }
  if (values_[node] != kNoValue) return false;
  values_[node] = value;
  return true;
}

bool TokenMatcher::Find(std::string_view text, size_t position, Match* match) const {
  for (; position < text.size(); ++position) {
    int32_t node = roots_[static_cast<unsigned char>(text[position])];
    if (node == 0) continue;
    size_t longest = 0;
    for (size_t end = position + 1;; ++end) {
      if (values_[node] != kNoValue) {
        longest = end;
        match->value = values_[node];
      }
      if (end == text.size()) break;
      const auto it = children_.find(static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(text[end]));
      if (it == children_.end()) break;
      node = it->second;
    }
    if (longest > 0) {
      match->begin = position;
      match->end = longest;
      return true;
    }
  }
  return false;
}

}  // namespace sluice::engine
