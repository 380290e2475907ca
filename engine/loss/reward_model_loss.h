// The Bradley-Terry loss of a reward model on pairs (Ouyang et al. 2022, 2203.02155, equation 1; the margin as in
// Touvron et al. 2023, 2307.09288, equation 2):
//
//   -log s(c - r - margin) + center_rewards_coefficient (c + r)^2
//
// for the rewards c of the chosen and r of the rejected response, averaged over the mini-batch's pairs. The second term
// (Eisenstein et al. 2023, 2312.09244) keeps the rewards' mean near 0, which the first leaves open.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "engine/loss/preference_loss.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

struct RewardModelOptions {
  double center_rewards_coefficient = 0;  // >= 0
};

struct RewardModelInputs {
  std::span<const PreferencePair> pairs;  // indices of reward
  std::span<const float> reward;          // [sequences]: the head's value at the last token of each
  std::span<const float> margin;          // [pairs], or empty for 0
};

// Adds up over micro-batches and ranks.
struct RewardModelMetrics {
  double loss = 0;
  WeightedSum accuracy, margin, chosen_reward, rejected_reward;

  RewardModelMetrics& operator+=(const RewardModelMetrics& other) {
    loss += other.loss;
    accuracy += other.accuracy;
    margin += other.margin;
    chosen_reward += other.chosen_reward;
    rejected_reward += other.rejected_reward;
    return *this;
  }
};

// pairs: number of the mini-batch's pairs (all micro-batches, all ranks). d_reward: [sequences], overwritten with the
// derivative of the mini-batch's loss. InvalidArgument: a bad option or pair, an array of another length.
absl::StatusOr<RewardModelMetrics> RewardModelLoss(const RewardModelOptions& options, const RewardModelInputs& inputs,
                                                   int64_t pairs, std::span<float> d_reward);

}  // namespace sluice::engine
