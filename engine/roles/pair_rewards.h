// Rewards of the two answers of pairs, from the values of a model with a value head. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/loss/reward_model_loss.h"
#include "engine/roles/sequence_groups.h"

namespace sluice::engine {

// For each sequence the slot of its last token that was marked to be learned: of an answer its end, whatever a template
// writes behind it. The last slot of a sequence without one.
std::vector<int64_t> LastMarkedSlots(const PackedGroups& packed);

// RewardModelLoss of the pairs in a micro-batch, whose groups are chosen and rejected in this order. `values` [T] slot
// by slot; `margin` one for each group, or empty for 0; `pairs` as there. d_values [T]: overwritten with the derivative
// of the mini-batch's loss, 0 but at the slots above. Errors as there.
absl::StatusOr<RewardModelMetrics> PairRewardLoss(const RewardModelOptions& options, const PackedGroups& packed,
                                                  absl::Span<const float> values, absl::Span<const float> margin,
                                                  int64_t pairs, std::span<float> d_values);

}  // namespace sluice::engine
