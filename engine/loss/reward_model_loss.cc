#include "engine/loss/reward_model_loss.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/loss/logistic.h"

namespace sluice::engine {
namespace {

absl::Status Check(const RewardModelOptions& options, const RewardModelInputs& inputs, size_t outputs) {
  if (!(options.center_rewards_coefficient >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("center_rewards_coefficient: is ", options.center_rewards_coefficient, ", must be 0 or more"));
  }
  if (!inputs.margin.empty() && inputs.margin.size() != inputs.pairs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("margin has ", inputs.margin.size(), " elements, there are ", inputs.pairs.size(), " pairs"));
  }
  if (outputs != inputs.reward.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("d_reward has ", outputs, " elements, reward has ", inputs.reward.size()));
  }
  const auto sequences = static_cast<int64_t>(inputs.reward.size());
  for (const PreferencePair& pair : inputs.pairs) {
    if (std::min(pair.chosen, pair.rejected) < 0 || std::max(pair.chosen, pair.rejected) >= sequences) {
      return absl::InvalidArgumentError(absl::StrCat("pair (", pair.chosen, ", ", pair.rejected,
                                                     ") names a sequence outside the ", sequences, " rewards"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RewardModelMetrics> RewardModelLoss(const RewardModelOptions& options, const RewardModelInputs& inputs,
                                                   int64_t pairs, std::span<float> d_reward) {
  RETURN_IF_ERROR(Check(options, inputs, d_reward.size()));
  std::vector<double> derivative(d_reward.size(), 0.0);
  RewardModelMetrics metrics;
  for (size_t i = 0; i < inputs.pairs.size(); ++i) {
    const auto [chosen_index, rejected_index] = inputs.pairs[i];
    const double chosen = inputs.reward[chosen_index], rejected = inputs.reward[rejected_index];
    const double logit = chosen - rejected - (inputs.margin.empty() ? 0 : inputs.margin[i]);
    const double weight = 1 / static_cast<double>(pairs);
    const double centre = options.center_rewards_coefficient * (chosen + rejected);
    metrics.loss += weight * (-LogSigmoid(logit) + centre * (chosen + rejected));
    derivative[chosen_index] += weight * (-Sigmoid(-logit) + 2 * centre);
    derivative[rejected_index] += weight * (Sigmoid(-logit) + 2 * centre);
    metrics.accuracy.Add(chosen > rejected);
    metrics.margin.Add(chosen - rejected);
    metrics.chosen_reward.Add(chosen);
    metrics.rejected_reward.Add(rejected);
  }
  std::transform(derivative.begin(), derivative.end(), d_reward.begin(),
                 [](double value) { return static_cast<float>(value); });
  return metrics;
}

}  // namespace sluice::engine
