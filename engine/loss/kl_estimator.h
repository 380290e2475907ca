// Per-token estimates of KL(policy || reference) from the log-probabilities of the sampled token, d = log_prob - ref:
//   kl, k1            d
//   abs               |d|
//   mse, k2           d^2 / 2
//   low_var_kl, k3    exp(-d) - 1 + d, with -d clamped to [-20, 20] and the result to [-10, 10]
// A name ending in + has that value but the gradient of k2, which is d: the gradients of k1 and k3 are, in
// expectation, not the one of the KL divergence.
// Source: Schulman 2020, "Approximating KL divergence"; the clamps are those of verl (where one acts, the gradient is
// 0).
#pragma once

#include <optional>
#include <span>

#include "absl/strings/string_view.h"

namespace sluice::engine {

enum class KlEstimator { kK1, kAbs, kK2, kK3 };

struct KlType {
  KlEstimator estimator = KlEstimator::kK3;
  bool k2_gradient = false;  // the + forms

  bool operator==(const KlType&) const = default;
};

struct KlTypeName {
  absl::string_view name;  // as in the configuration: kl_loss_type, kl_penalty
  KlType type;
};
std::span<const KlTypeName> KlTypeNames();
std::optional<KlType> ParseKlType(absl::string_view name);

struct KlTerm {
  double value = 0;
  double d_log_prob = 0;  // derivative by the policy's log-probability
};
KlTerm EstimateKl(KlType type, double log_prob, double ref_log_prob);

}  // namespace sluice::engine
