// The loss of a policy-gradient update and its derivatives: verl's policy_loss.loss_mode with entropy bonus and KL
// term.
//
//   loss = pg_loss - entropy_coeff * agg(entropy) + kl_loss_coef * agg(KL(policy || reference))
//
// Per counted token, with l = log_prob - old_log_prob, r = exp(clamp(l, -20, 20)), A the advantage, w the importance
// weight (1 without one), lo and hi the clip ratios, clip(x) = clamp(x, 1 - lo, 1 + hi) and sg() for "a constant":
//   vanilla   w L, L = max(-A r, -A clip(r)), and where A < 0: min(L, -A clip_ratio_c)
//             (PPO, 1707.06347; clip-higher is hi > lo, DAPO 2503.14476; dual clip 1912.09729)
//   gspo      as vanilla without dual clip, r = exp(min(10, log_prob - sg(log_prob) + sg(mean of l over the sequence)))
//             (2507.18071, the token form)
//   cispo     -w sg(clip(r)) A log_prob                                                            (2506.13585)
//   sapo      -w A (4 / tau) sigmoid(tau (r - 1)), tau = tau_pos where A > 0, else tau_neg          (2511.20347)
//   geo_mean  -w mean(A) exp(mean of s min(s l, s clamp(l, -lo, hi))), s = sign(A): one value for the sequence, means
//             over its counted tokens, w the geometric mean of theirs                              (2507.20673)
//   gpg       -w A log_prob                                                                        (2504.02546)
//   dro       -w (A log_prob - dro_beta l^2 / 2)                                                   (2405.19107)
//   clip_cov  w max(-A r, -A clip(r)), and 0 at the selected tokens                                (2505.22617)
//   kl_cov    w (-A r), and w (-A r + ppo_kl_coef |l|) at the selected tokens                      (2505.22617)
// The last two select over the whole mini-batch: covariance_selection.h.
//
// pg_loss is aggregated as `aggregation` says, except gspo, sapo and geo_mean, which are defined as a mean over
// sequences of means over tokens (seq-mean-token-mean). Entropy and KL follow `aggregation` always. Every normaliser is
// in BatchTotals, so nothing depends on the split into micro-batches, on packing or on ranks; geo_mean too. Where the
// policy is the one that sampled (log_prob == old_log_prob), every ratio is exactly 1.
//
// Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/loss/aggregation.h"
#include "engine/loss/kl_estimator.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

enum class PolicyLossMode { kVanilla, kGspo, kCispo, kSapo, kGeoMean, kGpg, kDro, kClipCov, kKlCov };

// What the configuration, the plan and the documentation need to know of a mode.
struct PolicyLossModeInfo {
  PolicyLossMode mode;
  absl::string_view name;             // policy_loss.loss_mode
  bool uses_old_log_prob;             // PolicyLossInputs::old_log_prob is needed
  bool needs_selection;               // PolicyLossInputs::selected is needed
  bool sequence_mean_of_token_means;  // pg_loss ignores loss_agg_mode
};
std::span<const PolicyLossModeInfo> PolicyLossModes();
const PolicyLossModeInfo& InfoOf(PolicyLossMode mode);
std::optional<PolicyLossMode> ParsePolicyLossMode(absl::string_view name);

// The names are those of verl's configuration.
struct PolicyLossOptions {
  PolicyLossMode mode = PolicyLossMode::kVanilla;
  double clip_ratio_low = 0.2;   // >= 0
  double clip_ratio_high = 0.2;  // >= 0
  double clip_ratio_c = 3.0;     // vanilla: > 1
  double tau_pos = 1.0;          // sapo: > 0
  double tau_neg = 1.05;         // sapo: > 0
  double dro_beta = 0;           // dro: > 0
  double ppo_kl_coef = 1.0;      // kl_cov: >= 0
  double entropy_coeff = 0;
  bool use_kl_loss = false;
  double kl_loss_coef = 0.001;
  KlType kl_loss_type;  // low_var_kl
  LossAggregation aggregation = LossAggregation::kTokenMean;
};

// InvalidArgument, naming the configuration key, for a value outside the range above.
absl::Status Validate(const PolicyLossOptions& options);

// All of length batch.tokens, or empty where said.
struct PolicyLossInputs {
  TokenBatch batch;
  std::span<const float> log_prob;      // of the policy in training
  std::span<const float> old_log_prob;  // of the policy at the start of the update; empty if the mode needs none
  std::span<const float> advantage;
  std::span<const float> entropy;            // empty: no entropy metric; needed if entropy_coeff != 0
  std::span<const float> ref_log_prob;       // needed if use_kl_loss
  std::span<const float> importance_weight;  // rollout_is weights, or empty
  std::span<const uint8_t> selected;         // clip_cov, kl_cov: 1 where selected
};

// Overwritten everywhere; 0 where no token counts.
struct PolicyLossGradients {
  std::span<float> d_log_prob;  // [tokens] derivative of the mini-batch's loss (the fused head takes its negative)
  std::span<float> d_entropy;   // [tokens], or empty if entropy_coeff == 0
};

// The values of micro-batches and ranks add up (operator+=) to those of the mini-batch.
struct PolicyLossMetrics {
  double loss = 0;     // as above
  double pg_loss = 0;  // its parts, without their coefficients
  double entropy_loss = 0;
  double kl_loss = 0;
  WeightedSum clip_fraction;        // tokens whose clipped term was taken (pg_clipfrac)
  WeightedSum clip_fraction_lower;  // tokens at -A clip_ratio_c (pg_clipfrac_lower); geo_mean: clipped ones with A < 0
  WeightedSum ppo_kl;               // mean of old_log_prob - log_prob, clamped as r is
  WeightedSum entropy;              // token mean
  double max_abs_log_ratio = 0;     // max |log_prob - old_log_prob|: 0 exactly if on-policy

  PolicyLossMetrics& operator+=(const PolicyLossMetrics& other);
};

// The part of the mini-batch's loss, and its derivatives, that belongs to the given sequences. totals: of the
// mini-batch. InvalidArgument: bad options or batch, an array that is missing or of another length. A log-probability
// that is not finite at a counted token makes the result not finite; it is not hidden.
absl::StatusOr<PolicyLossMetrics> PolicyLoss(const PolicyLossOptions& options, const PolicyLossInputs& inputs,
                                             const BatchTotals& totals, const PolicyLossGradients& gradients);

}  // namespace sluice::engine
