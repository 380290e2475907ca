// Kahneman-Tversky optimisation: single responses, each desirable or not (Ethayarajh et al. 2024, 2402.01306, equation
// 8).
//
// Per response, with r = sum of log_prob - sum of ref_log_prob over its counted tokens and s() the logistic function:
//   desirable    desirable_weight   (1 - s(beta (r - z)))
//   undesirable  undesirable_weight (1 - s(beta (z - r)))
// and the mean over the mini-batch's responses. z >= 0 estimates KL(policy || reference) and is a constant:
//   unpaired  one z for all: the mean of r over mismatched responses (each prompt with another prompt's response), from
//   a
//             forward without gradients of policy and reference: LogRatios of that batch, summed over all ranks
//   paired    no extra forward: desirable responses take the mean of r over the undesirable ones, and the reverse
//             (LogRatios of the mini-batch itself)
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

struct KtoOptions {
  double beta = 0.1;                // > 0
  double desirable_weight = 1.0;    // >= 0
  double undesirable_weight = 1.0;  // >= 0
};
absl::Status Validate(const KtoOptions& options);

struct KtoInputs {
  TokenBatch batch;
  std::span<const uint8_t> desirable;   // [sequences]
  std::span<const float> log_prob;      // [tokens]
  std::span<const float> ref_log_prob;  // [tokens]
};

// Mean of r over the responses with counted tokens. Adds up over micro-batches and ranks.
struct KtoLogRatios {
  WeightedSum desirable;
  WeightedSum undesirable;

  KtoLogRatios& operator+=(const KtoLogRatios& other) {
    desirable += other.desirable;
    undesirable += other.undesirable;
    return *this;
  }
};
absl::StatusOr<KtoLogRatios> LogRatios(const KtoInputs& inputs);

struct KtoReferencePoint {
  double desirable = 0;    // z of the desirable responses
  double undesirable = 0;  // z of the undesirable ones
};
KtoReferencePoint UnpairedReferencePoint(const KtoLogRatios& mismatched);
KtoReferencePoint PairedReferencePoint(const KtoLogRatios& mini_batch);

// Adds up over micro-batches and ranks. Rewards are beta r.
struct KtoMetrics {
  double loss = 0;
  WeightedSum desirable_reward, undesirable_reward;

  KtoMetrics& operator+=(const KtoMetrics& other) {
    loss += other.loss;
    desirable_reward += other.desirable_reward;
    undesirable_reward += other.undesirable_reward;
    return *this;
  }
};

// responses: number of the mini-batch's responses with counted tokens (BatchTotals::sequences). d_log_prob: [tokens],
// overwritten with the derivative of the mini-batch's loss; 0 where no token counts.
// InvalidArgument: bad options or batch, an array of another length.
absl::StatusOr<KtoMetrics> KtoLoss(const KtoOptions& options, const KtoInputs& inputs, const KtoReferencePoint& point,
                                   int64_t responses, std::span<float> d_log_prob);

}  // namespace sluice::engine
