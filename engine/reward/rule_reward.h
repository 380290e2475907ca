// Rewards that are a rule in this program: a pure function of the request.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/reward_kinds.h"
#include "engine/reward/reward.h"

namespace sluice::engine {

using RewardRule = std::function<RewardResult(const RewardRequest&)>;  // called from any thread

std::unique_ptr<Reward> MakeRuleReward(RewardRule rule);

// The rule of a kind of the table: gsm8k, math, math_dapo, format, exact_match, length. kInvalidArgument: another kind,
// or a pattern that does not compile.
absl::StatusOr<RewardRule> MakeRule(const std::string& kind, const RewardOptionValues& options);

}  // namespace sluice::engine
