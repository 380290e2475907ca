// A per-thread cache word → ids for short words, shared by all models of the thread. It needs no lock, has a fixed size
// and forgets a word when another one falls into its slot; results never depend on it.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "absl/types/span.h"

namespace sluice::engine {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 26;
  static constexpr size_t kMaxIds = 8;

  struct Entry {
    uint32_t owner;  // which model the entry is of; 0 where empty
    uint8_t word_size;
    uint8_t id_count;
    char word[kMaxWordBytes];
    int32_t ids[kMaxIds];

    bool Holds(uint32_t model, std::string_view text) const {
      return owner == model && word_size == text.size() && std::memcmp(word, text.data(), text.size()) == 0;
    }
    void Set(uint32_t model, std::string_view text, absl::Span<const int32_t> values) {
      owner = model;
      word_size = static_cast<uint8_t>(text.size());
      id_count = static_cast<uint8_t>(values.size());
      std::memcpy(word, text.data(), text.size());
      std::memcpy(ids, values.data(), values.size() * sizeof(int32_t));
    }
  };
  static_assert(sizeof(Entry) == 64, "an entry fills a cache line");

  static WordCache& OfThisThread() {
    thread_local WordCache cache;
    return cache;
  }

  // The entry that the word has or would have. REQUIRES: 0 < word.size() <= kMaxWordBytes.
  Entry& At(std::string_view word) { return entries_[Hash(word) % kEntries]; }

 private:
  // 1 MiB: bigger tables miss the second-level cache more often than they save merges.
  static constexpr size_t kEntries = 1 << 14;

  static uint64_t Hash(std::string_view word) {
    constexpr uint64_t kFactor = 0x9E3779B97F4A7C15u;
    uint64_t hash = word.size();
    const char* p = word.data();
    size_t left = word.size();
    for (; left >= 8; left -= 8, p += 8) {
      uint64_t chunk;
      std::memcpy(&chunk, p, 8);
      hash = (hash ^ chunk) * kFactor;
      hash ^= hash >> 32;
    }
    uint64_t tail = 0;
    std::memcpy(&tail, p, left);
    hash = (hash ^ tail) * kFactor;
    return hash ^ hash >> 32;
  }

  std::unique_ptr<Entry[]> entries_ = std::make_unique<Entry[]>(kEntries);
};

}  // namespace sluice::engine
