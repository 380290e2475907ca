// The KL divergence from the reference as part of the reward (algorithm.use_kl_in_reward), and the controller of its
// coefficient (Ziegler et al. 2019, 1909.08593, section 2.2).
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/loss/kl_estimator.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

struct KlPenaltyInputs {
  TokenBatch batch;
  std::span<const float> log_prob;      // [tokens] of the policy that is to be updated (old_log_prob)
  std::span<const float> ref_log_prob;  // [tokens]
};

// token_rewards[t] -= kl_coef * KL[t] for the counted tokens ([tokens]; elsewhere untouched).
// Returns, for the controller and the metric reward_kl_penalty, the mean over sequences of their token means, as a sum
// that adds up over ranks. InvalidArgument: a bad batch, an array of another length.
absl::StatusOr<WeightedSum> ApplyKlPenalty(KlType type, double kl_coef, const KlPenaltyInputs& inputs,
                                           std::span<float> token_rewards);

enum class KlControllerType { kFixed, kAdaptive };

struct KlControllerOptions {
  KlControllerType type = KlControllerType::kFixed;  // kl_ctrl.type: fixed, adaptive
  double kl_coef = 0.001;                            // at the start of the run
  double target_kl = 0.1;                            // adaptive: > 0
  double horizon = 10000;                            // adaptive: > 0, in samples
};
absl::Status Validate(const KlControllerOptions& options);

// What a checkpoint saves: a resumed run goes on with the coefficient it had.
struct KlControllerState {
  double kl_coef = 0;
};
KlControllerState InitialKlControllerState(const KlControllerOptions& options);

// After a step whose KL was `current_kl`, over `samples` samples (all ranks'):
//   adaptive  kl_coef *= 1 + clamp(current_kl / target_kl - 1, -0.2, 0.2) samples / horizon
// A KL that is not finite changes nothing. Every rank computes the same from the same totals.
KlControllerState UpdateKlController(const KlControllerOptions& options, KlControllerState state, double current_kl,
                                     int64_t samples);

}  // namespace sluice::engine
