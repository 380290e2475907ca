// Correction for samples drawn from another policy than the one the update starts from: another kernel, precision or
// age of weights (verl's algorithm.rollout_correction; Yao et al. 2025, "Your efficient RL framework secretly brings
// you off-policy RL training"; IcePop: Ling team 2025, 2510.18855).
//
// With l[t] = old_log_prob - rollout_log_prob of the counted tokens, bounded to [-20, 20] before it is exponentiated:
//   rollout_is  token     w[t] = exp(l[t])
//               sequence  w[t] = exp(sum of l over the sequence)
//   rollout_is_threshold  "hi": min(w, hi);  "lo_hi": w inside [lo, hi], else 0 (IcePop)
//   rollout_is_batch_normalize  w / mean: over all tokens, or over all sequences
// The weights multiply the policy loss's terms (PolicyLossInputs::importance_weight) and are constants.
//
// Rejection takes tokens or whole sequences out of the mask, and so out of the loss and its denominator, where a
// statistic leaves its bounds. Statistics: k1 = -l, k2 = l^2 / 2, k3 = exp(l) - 1 - l, l bounded as above;
//   rollout_rs  token_k1 token_k2 token_k3                 of the token
//               seq_sum_k1 seq_sum_k2 seq_sum_k3           summed over the sequence
//               seq_mean_k1 seq_mean_k2 seq_mean_k3        averaged over it
//               seq_max_k2 seq_max_k3                      the largest of it
//   rollout_rs_threshold  k1: "lo_hi", bounds of exp(statistic), or "hi" for [1 / hi, hi];  k2, k3: an upper bound
// Several criteria, separated by commas, have one threshold each or one for all; a token stays if it meets them all.
// Both are taken from the mask given: a rejection changes no weight.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

enum class RolloutImportance { kNone, kToken, kSequence };
std::optional<RolloutImportance> ParseRolloutImportance(absl::string_view name);  // none, token, sequence

// Bounds of a weight: below `lower` or above `upper` it is 0 if lower is set; else it is at most `upper`.
struct ImportanceThreshold {
  double upper = 2;  // > 0
  std::optional<double> lower;
};
// "2.0" or "0.5_5.0". InvalidArgument, naming rollout_is_threshold.
absl::StatusOr<ImportanceThreshold> ParseImportanceThreshold(absl::string_view text);

enum class RejectionScope { kToken, kSequenceSum, kSequenceMean, kSequenceMax };
enum class RejectionStatistic { kK1, kK2, kK3 };

struct RejectionCriterion {
  RejectionScope scope = RejectionScope::kToken;
  RejectionStatistic statistic = RejectionStatistic::kK1;
  double lower = 0;  // of the statistic itself (k1: log of the bound); k2, k3: unused
  double upper = 0;
};

struct RejectionName {
  absl::string_view name;
  RejectionScope scope;
  RejectionStatistic statistic;
};
std::span<const RejectionName> RejectionNames();

// Of rollout_rs and rollout_rs_threshold; no criteria for an empty text or "none".
// InvalidArgument, naming the key: an unknown criterion, a threshold that is missing, malformed or not positive.
absl::StatusOr<std::vector<RejectionCriterion>> ParseRejection(absl::string_view names, absl::string_view thresholds);

struct RolloutCorrectionOptions {
  RolloutImportance importance = RolloutImportance::kNone;
  ImportanceThreshold threshold;
  bool batch_normalize = false;
  std::vector<RejectionCriterion> rejection;
};

struct RolloutCorrectionInputs {
  TokenBatch batch;
  std::span<const float> old_log_prob;      // [tokens] the trainer's
  std::span<const float> rollout_log_prob;  // [tokens] the rollout engine's
};

// Adds up over ranks (the maxima by max).
struct RolloutCorrectionMetrics {
  WeightedSum kl;                   // token mean of -l: KL(rollout || trainer) by k1
  WeightedSum k3_kl;                // by k3
  WeightedSum log_prob_difference;  // token mean of |l|
  WeightedSum probs_diff;           // token mean of |exp(old_log_prob) - exp(rollout_log_prob)|
  double probs_diff_max = 0;
  WeightedSum weight;             // token mean of the weights before normalising
  WeightedSum weight_squared;     // effective sample size = weight.sum^2 / weight_squared.sum
  WeightedSum weight_normaliser;  // its mean divides the weights if batch_normalize
  WeightedSum weight_outside;     // fraction of tokens whose weight was cut
  WeightedSum rejected_tokens;
  WeightedSum rejected_sequences;  // with a rejected token

  RolloutCorrectionMetrics& operator+=(const RolloutCorrectionMetrics& other);
};

struct RolloutCorrection {
  std::vector<float> weight;  // [tokens]; empty for kNone. 0 where no token counts.
  std::vector<uint8_t> mask;  // [tokens]: the batch's mask without the rejected tokens
  RolloutCorrectionMetrics metrics;
};

// This rank's half; complete unless batch_normalize. InvalidArgument: a bad batch, an array of another length.
absl::StatusOr<RolloutCorrection> CorrectRollout(const RolloutCorrectionOptions& options,
                                                 const RolloutCorrectionInputs& inputs);

// The other half, for batch_normalize: `normaliser` is the sum of all ranks' metrics.weight_normaliser.
void NormaliseWeights(const WeightedSum& normaliser, std::span<float> weight);

}  // namespace sluice::engine
