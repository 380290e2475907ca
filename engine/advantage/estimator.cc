#include "engine/advantage/estimator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace sluice::engine {
namespace {

constexpr double kStdEpsilon = 1e-6;

// Differences to the first reward: they lose nothing to a large common part, and are all 0 for equal rewards.
struct Centred {
  std::vector<double> deviation;  // reward - mean
  double std = 0;                 // unbiased
};

Centred Centre(std::span<const double> reward) {
  Centred result;
  double mean = 0;
  for (const double value : reward) mean += value - reward[0];
  mean /= static_cast<double>(reward.size());
  double squares = 0;
  for (const double value : reward) {
    result.deviation.push_back(value - reward[0] - mean);
    squares += result.deviation.back() * result.deviation.back();
  }
  result.std = std::sqrt(squares / static_cast<double>(reward.size() - 1));
  return result;
}

double Divisor(const AdvantageOptions& options, const Centred& centred) {
  return options.norm_adv_by_std_in_grpo ? centred.std + kStdEpsilon : 1;
}

void Grpo(const AdvantageOptions& options, const RewardGroup& group, std::span<double> advantage) {
  const Centred centred = Centre(group.reward);
  const double divisor = Divisor(options, centred);
  for (size_t i = 0; i < advantage.size(); ++i) advantage[i] = centred.deviation[i] / divisor;
}

void GrpoPassk(const AdvantageOptions& options, const RewardGroup& group, std::span<double> advantage) {
  const auto best = std::max_element(group.reward.begin(), group.reward.end()) - group.reward.begin();
  double second = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < group.reward.size(); ++i) {
    if (static_cast<std::ptrdiff_t>(i) != best) second = std::max(second, group.reward[i]);
  }
  std::fill(advantage.begin(), advantage.end(), 0.0);
  advantage[best] = (group.reward[best] - second) / Divisor(options, Centre(group.reward));
}

void Rloo(const AdvantageOptions&, const RewardGroup& group, std::span<double> advantage) {
  const Centred centred = Centre(group.reward);
  const auto samples = static_cast<double>(advantage.size());
  for (size_t i = 0; i < advantage.size(); ++i) advantage[i] = centred.deviation[i] * samples / (samples - 1);
}

void Opo(const AdvantageOptions&, const RewardGroup& group, std::span<double> advantage) {
  double weighted = 0, lengths = 0;
  for (size_t i = 0; i < group.reward.size(); ++i) {
    weighted += group.length[i] * (group.reward[i] - group.reward[0]);
    lengths += group.length[i];
  }
  const double baseline = lengths == 0 ? 0 : weighted / lengths;
  for (size_t i = 0; i < advantage.size(); ++i) advantage[i] = group.reward[i] - group.reward[0] - baseline;
}

void MeanBaseline(const AdvantageOptions&, const RewardGroup& group, std::span<double> advantage) {
  const Centred centred = Centre(group.reward);
  std::copy(centred.deviation.begin(), centred.deviation.end(), advantage.begin());
}

void Gae(const AdvantageOptions& options, const RewardedTokens& tokens, std::span<double> advantage,
         std::span<double> returns) {
  double next_value = 0, next_advantage = 0;
  for (size_t t = advantage.size(); t-- > 0;) {
    const double delta = tokens.reward[t] + options.gamma * next_value - tokens.value[t];
    next_advantage = delta + options.gamma * options.lam * next_advantage;
    next_value = tokens.value[t];
    advantage[t] = next_advantage;
    returns[t] = next_advantage + tokens.value[t];
  }
}

void RewardToGo(const RewardedTokens& tokens, double gamma, std::span<double> returns) {
  double next = 0;
  for (size_t t = returns.size(); t-- > 0;) {
    next = tokens.reward[t] + gamma * next;
    returns[t] = next;
  }
}

void ReinforcePlusPlus(const AdvantageOptions& options, const RewardedTokens& tokens, std::span<double> advantage,
                       std::span<double> returns) {
  RewardToGo(tokens, options.gamma, returns);
  std::copy(returns.begin(), returns.end(), advantage.begin());
}

void Remax(const AdvantageOptions&, const RewardedTokens& tokens, std::span<double> advantage,
           std::span<double> returns) {
  RewardToGo(tokens, 1, returns);
  for (size_t t = 0; t < advantage.size(); ++t) advantage[t] = returns[t] - tokens.baseline;
}

using enum AdvantageEstimator;
const EstimatorRow kRows[] = {
    {{.estimator = kGae, .name = "gae", .needs_values = true, .whitens = true}, nullptr, Gae},
    {{.estimator = kGrpo, .name = "grpo", .needs_groups = true}, Grpo, nullptr},
    {{.estimator = kGrpoPassk, .name = "grpo_passk", .needs_groups = true}, GrpoPassk, nullptr},
    {{.estimator = kReinforcePlusPlus, .name = "reinforce_plus_plus", .whitens = true}, nullptr, ReinforcePlusPlus},
    {{.estimator = kReinforcePlusPlusBaseline,
      .name = "reinforce_plus_plus_baseline",
      .needs_groups = true,
      .whitens = true},
     MeanBaseline,
     nullptr},
    {{.estimator = kRloo, .name = "rloo", .needs_groups = true}, Rloo, nullptr},
    {{.estimator = kOpo, .name = "opo", .needs_groups = true}, Opo, nullptr},
    {{.estimator = kRemax, .name = "remax", .needs_baseline = true}, nullptr, Remax},
    {{.estimator = kGpg, .name = "gpg", .needs_groups = true}, MeanBaseline, nullptr},
    {{.estimator = kGdpo, .name = "gdpo", .needs_groups = true, .needs_components = true, .whitens = true},
     Grpo,
     nullptr},
};

}  // namespace

std::span<const EstimatorRow> EstimatorRows() { return kRows; }

}  // namespace sluice::engine
