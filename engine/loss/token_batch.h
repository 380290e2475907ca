// How a loss or an advantage estimator sees a batch: arrays over tokens, and which of their places count.
//
// The arrays hold the response tokens of whole sequences one after another, in any order; places that belong to no
// sequence (a packed micro-batch's tail) may lie between. A sequence is never split over two batches. Where the mask is
// 0 (a tool's output, a sample whose reward failed) or where no sequence is, values are never read: NaN or infinity
// there changes nothing, and results there are 0.
//
// Sums are in double, over sequences and tokens in ascending order.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::engine {

struct Sequence {
  int64_t begin = 0;    // its tokens are [begin, end) in every array
  int64_t end = 0;      // >= begin
  uint64_t sample = 0;  // the sample's number in the step: the key of whatever is drawn at random
};

// Does not own what it views.
struct TokenBatch {
  std::span<const Sequence> sequences;
  int64_t tokens = 0;             // length of every array
  std::span<const uint8_t> mask;  // [tokens]: 1 counts, 0 does not. Empty: all tokens of the sequences count.

  bool Counts(int64_t token) const { return mask.empty() || mask[token] != 0; }
};

// Number of `sequence`'s tokens that count.
int64_t CountedTokens(const TokenBatch& batch, const Sequence& sequence);

// InvalidArgument: a mask of another length, a sequence outside [0, tokens], two that overlap.
absl::Status Validate(const TokenBatch& batch);

// InvalidArgument, naming `array`, unless `size` is the batch's number of tokens.
absl::Status CheckLength(const TokenBatch& batch, size_t size, absl::string_view array);

// A mean in two parts, so that parts of a batch add up to what the whole gives.
struct WeightedSum {
  double sum = 0;
  double weight = 0;

  void Add(double value, double value_weight = 1) {
    sum += value * value_weight;
    weight += value_weight;
  }
  WeightedSum& operator+=(const WeightedSum& other) {
    sum += other.sum;
    weight += other.weight;
    return *this;
  }
  double Mean() const { return weight == 0 ? 0 : sum / weight; }
};

}  // namespace sluice::engine
