// How the losses of tokens become the loss of a mini-batch (verl's loss_agg_mode).
//
// The loss of the mini-batch is sum over its counted tokens of weight[t] * loss[t], with N counted tokens and B
// sequences that have any in the whole mini-batch (all micro-batches of all data-parallel ranks) and n in the token's
// sequence:
//   token-mean               1 / N
//   token-sum                1
//   seq-mean-token-sum       1 / B
//   seq-mean-token-sum-norm  1 / (B loss_scale_factor)
//   seq-mean-token-mean      1 / (B n)
// A weight depends on nothing else, so the split into micro-batches, their order and the ranks change no gradient.
// Gradients add up: over micro-batches, and over ranks (their all-reduce is a sum, not a mean).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

enum class LossAggregation { kTokenMean, kTokenSum, kSeqMeanTokenSum, kSeqMeanTokenSumNorm, kSeqMeanTokenMean };

struct LossAggregationName {
  LossAggregation aggregation;
  absl::string_view name;  // as in the configuration
};
std::span<const LossAggregationName> LossAggregationNames();
std::optional<LossAggregation> ParseLossAggregation(absl::string_view name);

// Of the whole mini-batch: the sum over micro-batches and ranks of CountBatch.
struct BatchTotals {
  int64_t tokens = 0;            // counted ones
  int64_t sequences = 0;         // with at least one counted token
  double loss_scale_factor = 0;  // > 0 for seq-mean-token-sum-norm: a constant such as the longest response allowed

  BatchTotals& operator+=(const BatchTotals& other) {
    tokens += other.tokens;
    sequences += other.sequences;
    return *this;
  }
};
BatchTotals CountBatch(const TokenBatch& batch);

// InvalidArgument: no loss_scale_factor where the mode divides by it.
absl::Status Validate(LossAggregation aggregation, const BatchTotals& totals);

// Weight of a token in a sequence of `length` counted tokens. REQUIRES: Validate is OK; length >= 1; `totals` counts
// it.
double TokenWeight(LossAggregation aggregation, const BatchTotals& totals, int64_t length);

// This batch's part of the mini-batch's loss: sum of weight[t] * loss[t]. loss: [tokens].
double Aggregate(LossAggregation aggregation, const BatchTotals& totals, const TokenBatch& batch,
                 std::span<const float> loss);

}  // namespace sluice::engine
