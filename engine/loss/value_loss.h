// The critic's loss with clipped values (PPO's, Schulman et al. 2017, as in its published implementation).
//
//   loss[t] = 1/2 max((v - R)^2, (clamp(v, v_old - c, v_old + c) - R)^2),   c = cliprange_value
// aggregated as aggregation.h says. Its derivative by v is v - R, or 0 where the clipped term is the larger one.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "engine/loss/aggregation.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

struct ValueLossOptions {
  double cliprange_value = 0.5;  // > 0
  LossAggregation aggregation = LossAggregation::kTokenMean;
};

// All of length batch.tokens.
struct ValueLossInputs {
  TokenBatch batch;
  std::span<const float> value;      // of the critic in training
  std::span<const float> old_value;  // at the start of the update
  std::span<const float> returns;
};

// The values of micro-batches and ranks add up.
struct ValueLossMetrics {
  double vf_loss = 0;
  WeightedSum vf_clip_fraction;  // tokens whose clipped term was taken
  WeightedSum value;             // vpred_mean

  ValueLossMetrics& operator+=(const ValueLossMetrics& other) {
    vf_loss += other.vf_loss;
    vf_clip_fraction += other.vf_clip_fraction;
    value += other.value;
    return *this;
  }
};

// d_value: [tokens], overwritten with the derivative of the mini-batch's loss; 0 where no token counts.
// InvalidArgument: a bad option or batch, an array of another length.
absl::StatusOr<ValueLossMetrics> ValueLoss(const ValueLossOptions& options, const ValueLossInputs& inputs,
                                           const BatchTotals& totals, std::span<float> d_value);

}  // namespace sluice::engine
