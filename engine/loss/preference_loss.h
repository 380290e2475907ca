// Losses on pairs of a chosen and a rejected response to one prompt.
//
// Per pair, with c and r the sums of log_prob over the counted tokens of both, C and R those of the reference, n and m
// their lengths, s() the logistic function:
//   dpo, sigmoid  -(1 - e) log s(beta D) - e log s(-beta D), D = (c - C) - (r - R), e = label_smoothing    (2305.18290)
//   hinge         max(0, 1 - beta D)                                                                      (2305.10425)
//   ipo           ((c - C) / n - (r - R) / m - 1 / (2 beta))^2, per token as its authors do               (2310.12036)
//   simpo         as dpo with beta (c / n - r / m) - simpo_gamma in place of beta D                       (2405.14734)
//   orpo          nll - beta log s(log odds(c / n) - log odds(r / m)), log odds(a) = a - log(1 - exp(a))  (2403.07691)
//                 nll = -log_prob averaged over the mini-batch's chosen tokens
// The loss of the mini-batch is the mean over its pairs. A pair one of whose responses has no counted token is left out
// and counted. All normalisers are in PreferenceTotals, so micro-batches, packing and ranks change nothing.
// REQUIRES: both responses of a pair lie in one batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

enum class PreferenceLossType { kSigmoid, kHinge, kIpo, kSimpo, kOrpo };

struct PreferenceLossInfo {
  absl::string_view name;
  PreferenceLossType type;
  bool needs_reference;
};
std::span<const PreferenceLossInfo> PreferenceLosses();
std::optional<PreferenceLossType> ParsePreferenceLoss(absl::string_view name);

struct PreferenceOptions {
  PreferenceLossType type = PreferenceLossType::kSigmoid;
  double beta = 0.1;           // > 0; orpo: its lambda
  double label_smoothing = 0;  // in [0, 0.5): sigmoid, simpo
  double simpo_gamma = 0.5;    // simpo: the target margin
};
absl::Status Validate(const PreferenceOptions& options);

// Indices of TokenBatch::sequences.
struct PreferencePair {
  int64_t chosen = 0;
  int64_t rejected = 0;
};

struct PreferenceInputs {
  TokenBatch batch;
  std::span<const PreferencePair> pairs;
  std::span<const float> log_prob;      // [tokens]
  std::span<const float> ref_log_prob;  // [tokens], or empty if the loss needs none
};

// Of the whole mini-batch: the sum over micro-batches and ranks of CountPairs.
struct PreferenceTotals {
  int64_t pairs = 0;  // both responses with counted tokens
  int64_t chosen_tokens = 0;

  PreferenceTotals& operator+=(const PreferenceTotals& other) {
    pairs += other.pairs;
    chosen_tokens += other.chosen_tokens;
    return *this;
  }
};
PreferenceTotals CountPairs(const TokenBatch& batch, std::span<const PreferencePair> pairs);

// Adds up over micro-batches and ranks. A response's reward is beta times what the loss compares (c - C, c / n).
struct PreferenceMetrics {
  double loss = 0;
  double nll = 0;  // orpo
  WeightedSum accuracy, margin, chosen_reward, rejected_reward;
  int64_t pairs_left_out = 0;

  PreferenceMetrics& operator+=(const PreferenceMetrics& other);
};

// d_log_prob: [tokens], overwritten with the derivative of the mini-batch's loss; 0 where no token counts.
// InvalidArgument: bad options, batch or pair, an array that is missing or of another length.
absl::StatusOr<PreferenceMetrics> PreferenceLoss(const PreferenceOptions& options, const PreferenceInputs& inputs,
                                                 const PreferenceTotals& totals, std::span<float> d_log_prob);

}  // namespace sluice::engine
