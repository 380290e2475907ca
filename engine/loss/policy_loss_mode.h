// The modes of policy_loss.h: one function each over the counted tokens of one sequence. A new mode is a function, a
// row of kRows in policy_loss_mode.cc and an enumerator. Only policy_loss.cc and its neighbours include this.
#pragma once

#include <cstdint>
#include <span>

#include "engine/loss/policy_loss.h"

namespace sluice::engine {

inline constexpr double kMaxLogRatio = 20;

// The counted tokens of one sequence, gathered; all of one length >= 1.
struct PolicySequence {
  std::span<const double> log_prob;
  std::span<const double> old_log_prob;  // equal to log_prob where the mode uses none
  std::span<const double> advantage;
  std::span<const uint8_t> selected;  // zeros where the mode selects none
};

struct PolicyTokenLoss {
  double value = 0;
  double d_log_prob = 0;  // of the sum over the sequence's tokens of value, by this token's log_prob
  bool clipped = false;
  bool clipped_lower = false;
};

// Writes out[i] for each token. Importance weights and the aggregation's weights are applied by the caller.
using PolicyModeFunction = void (*)(const PolicyLossOptions& options, const PolicySequence& sequence,
                                    std::span<PolicyTokenLoss> out);

struct PolicyModeRow {
  PolicyLossModeInfo info;
  PolicyModeFunction function;
  bool sequence_importance_weight;  // the tokens' weights are replaced by their geometric mean over the sequence
};
std::span<const PolicyModeRow> PolicyModeRows();

}  // namespace sluice::engine
