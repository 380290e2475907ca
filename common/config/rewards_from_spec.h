// The reward section of a job to the rewards that are added up.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/reward_kinds.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// At least one. InvalidArgument begins with the key: `reward.terms.form: pattern: is required`.
absl::StatusOr<std::vector<RewardSpec>> RewardsFromSpec(const v1::RewardSpec& spec);

}  // namespace sluice
