// From a job's reward specs (common/reward_kinds.h) to one Reward.
#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/reward_kinds.h"
#include "engine/reward/reward.h"

namespace sluice::engine {

// Makes a reward of kind `model`, which needs what only the caller has: a device and the policy's tokenizer. Called
// once for each such spec, in their order, during MakeReward.
using RewardModelMaker = absl::FunctionRef<absl::StatusOr<std::unique_ptr<Reward>>(const RewardSpec& spec)>;

// For callers that have none of it: kInvalidArgument.
absl::StatusOr<std::unique_ptr<Reward>> NoRewardModel(const RewardSpec& spec);

// The weighted sum of the specs' rewards, as weighted_reward.h describes it, also of a single one. Starts what they
// need: a Python reward has imported the user's file once this returns.
// kInvalidArgument: no spec, what CheckRewardSpecs refuses, a pattern that does not compile, a Python file that cannot
// be imported or lacks the function. NotFound: a file or a Python program that is not there. And those of `make_model`.
absl::StatusOr<std::unique_ptr<Reward>> MakeReward(absl::Span<const RewardSpec> specs,
                                                   RewardModelMaker make_model = NoRewardModel);

// One of them, without weight and name.
absl::StatusOr<std::unique_ptr<Reward>> MakeSingleReward(const RewardSpec& spec,
                                                         RewardModelMaker make_model = NoRewardModel);

}  // namespace sluice::engine
