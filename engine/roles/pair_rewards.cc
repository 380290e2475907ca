#include "engine/roles/pair_rewards.h"

#include <algorithm>

#include "common/status_macros.h"

namespace sluice::engine {

std::vector<int64_t> LastMarkedSlots(const PackedGroups& packed) {
  std::vector<int64_t> slots;
  for (const Sequence& sequence : packed.sequences) {
    // A slot has a label where the next token is marked.
    int64_t slot = sequence.end - 1;
    while (slot > sequence.begin && packed.mask[static_cast<size_t>(slot - 1)] == 0) --slot;
    slots.push_back(slot > sequence.begin ? slot : sequence.end - 1);
  }
  return slots;
}

absl::StatusOr<RewardModelMetrics> PairRewardLoss(const RewardModelOptions& options, const PackedGroups& packed,
                                                  absl::Span<const float> values, absl::Span<const float> margin,
                                                  int64_t pairs, std::span<float> d_values) {
  const std::vector<int64_t> slots = LastMarkedSlots(packed);
  std::vector<float> reward;
  for (const int64_t slot : slots) reward.push_back(values[static_cast<size_t>(slot)]);
  const std::vector<PreferencePair> places = PairsOf(packed);
  std::vector<float> d_reward(reward.size());
  ASSIGN_OR_RETURN(const RewardModelMetrics metrics,
                   RewardModelLoss(options, {.pairs = places, .reward = reward, .margin = margin}, pairs, d_reward));
  std::fill(d_values.begin(), d_values.end(), 0.0f);
  for (size_t i = 0; i < slots.size(); ++i) d_values[static_cast<size_t>(slots[i])] = d_reward[i];
  return metrics;
}

}  // namespace sluice::engine
