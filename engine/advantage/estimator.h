// The estimators of advantage.h: one function each, over a group or over a response. A new one is a function, a row of
// kRows in estimator.cc and an enumerator. Only advantage.cc and its neighbours include this.
#pragma once

#include <span>

#include "engine/advantage/advantage.h"

namespace sluice::engine {

// The scored samples of one group, two or more, not all of equal reward.
struct RewardGroup {
  std::span<const double> reward;
  std::span<const double> length;  // counted tokens
};
// Writes the advantage of each sample's tokens.
using GroupFunction = void (*)(const AdvantageOptions& options, const RewardGroup& group, std::span<double> advantage);

// The counted tokens of one scored response.
struct RewardedTokens {
  std::span<const double> reward;  // score included
  std::span<const double> value;   // zeros where the estimator uses none
  double baseline = 0;
};
using TokenFunction = void (*)(const AdvantageOptions& options, const RewardedTokens& tokens,
                               std::span<double> advantage, std::span<double> returns);

struct EstimatorRow {
  AdvantageEstimatorInfo info;
  GroupFunction group_function;  // one of the two is null
  TokenFunction token_function;
};
std::span<const EstimatorRow> EstimatorRows();

}  // namespace sluice::engine
