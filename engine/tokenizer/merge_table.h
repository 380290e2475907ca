// The merges of a BPE model: pair of pieces → rank and merged piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::engine {

struct Merge {
  uint32_t rank;  // lower is earlier; kNoMerge where the pair does not merge
  int32_t id;
};
inline constexpr uint32_t kNoMerge = UINT32_MAX;

// A hash table with linear probing, at most half full: the lookup is the inner loop of tokenisation, and a miss (the
// common case) usually touches one cache line. Immutable after the last Insert; then Find may be called from any
// thread.
class MergeTable {
 public:
  explicit MergeTable(size_t expected) {
    size_t capacity = 16;
    while (capacity < 2 * expected) capacity *= 2;
    slots_.resize(capacity, Slot{kEmpty, {kNoMerge, 0}});
    shift_ = 64;
    for (size_t c = capacity; c > 1; c /= 2) --shift_;
  }

  // Replaces an earlier merge of the same pair. REQUIRES: at most `expected` different pairs.
  void Insert(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = KeyOf(left, right);
    size_t i = IndexOf(key);
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {key, merge};
  }

  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = KeyOf(left, right);
    for (size_t i = IndexOf(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {kNoMerge, 0};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;  // no key: ids are not negative
  struct Slot {
    uint64_t key;
    Merge merge;
  };

  static uint64_t KeyOf(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  // Multiplicative hashing (Knuth, TAOCP 3, section 6.4) with the 64-bit golden ratio.
  size_t IndexOf(uint64_t key) const { return static_cast<size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15u >> shift_); }

  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace sluice::engine
