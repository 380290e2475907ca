#include "engine/advantage/kl_penalty.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

constexpr double kMaxRelativeError = 0.2;

}  // namespace

absl::StatusOr<WeightedSum> ApplyKlPenalty(KlType type, double kl_coef, const KlPenaltyInputs& inputs,
                                           std::span<float> token_rewards) {
  const TokenBatch& batch = inputs.batch;
  RETURN_IF_ERROR(Validate(batch));
  RETURN_IF_ERROR(CheckLength(batch, inputs.log_prob.size(), "log_prob"));
  RETURN_IF_ERROR(CheckLength(batch, inputs.ref_log_prob.size(), "ref_log_prob"));
  RETURN_IF_ERROR(CheckLength(batch, token_rewards.size(), "token_rewards"));
  WeightedSum mean;
  for (const Sequence& sequence : batch.sequences) {
    WeightedSum tokens;
    for (int64_t token = sequence.begin; token < sequence.end; ++token) {
      if (!batch.Counts(token)) continue;
      const double kl = EstimateKl(type, inputs.log_prob[token], inputs.ref_log_prob[token]).value;
      token_rewards[token] = static_cast<float>(token_rewards[token] - kl_coef * kl);
      tokens.Add(kl);
    }
    if (tokens.weight > 0) mean.Add(tokens.Mean());
  }
  return mean;
}

absl::Status Validate(const KlControllerOptions& options) {
  const auto positive = [](double value, absl::string_view key) {
    return value > 0 ? absl::OkStatus()
                     : absl::InvalidArgumentError(
                           absl::StrCat("algorithm.kl_ctrl.", key, ": is ", value, ", must be above 0"));
  };
  if (!(options.kl_coef >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("algorithm.kl_ctrl.kl_coef: is ", options.kl_coef, ", must be 0 or more"));
  }
  if (options.type == KlControllerType::kFixed) return absl::OkStatus();
  RETURN_IF_ERROR(positive(options.target_kl, "target_kl"));
  return positive(options.horizon, "horizon");
}

KlControllerState InitialKlControllerState(const KlControllerOptions& options) { return {options.kl_coef}; }

KlControllerState UpdateKlController(const KlControllerOptions& options, KlControllerState state, double current_kl,
                                     int64_t samples) {
  if (options.type == KlControllerType::kFixed || !std::isfinite(current_kl)) return state;
  const double error = std::clamp(current_kl / options.target_kl - 1, -kMaxRelativeError, kMaxRelativeError);
  state.kl_coef *= 1 + error * static_cast<double>(samples) / options.horizon;
  return state;
}

}  // namespace sluice::engine
