// Finds a fixed set of strings in a text: leftmost first, then longest, without overlap.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

namespace sluice::engine {

// A trie. Immutable after the last Add; then const methods may be called from any thread.
class TokenMatcher {
 public:
  // Returns false if the string is there already. REQUIRES: content is not empty.
  bool Add(std::string_view content, int32_t value);

  bool empty() const { return values_.size() == 1; }

  // The first match at or after `position`.
  struct Match {
    size_t begin;
    size_t end;
    int32_t value;
  };
  bool Find(std::string_view text, size_t position, Match* match) const;

 private:
  static constexpr int32_t kNoValue = -1;

  std::array<int32_t, 256> roots_ = {};              // node by first byte; 0: none
  absl::flat_hash_map<uint64_t, int32_t> children_;  // (node << 8 | byte) → node
  std::vector<int32_t> values_ = {kNoValue};         // by node; node 0 is the root
};

}  // namespace sluice::engine
