// The reward section of a job to the rewards that are added up.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/reward_kinds.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// At least one. InvalidArgument begins with the key: `reward.terms.form: pattern: is required`.
absl::StatusOr<std::vector<RewardSpec>> RewardsFromSpec(const v1::RewardSpec& spec);

// Whether answers are judged: false where the only reward is `none`, which gives all of them the same.
bool JudgesAnswers(const v1::RewardSpec& spec);

// A reward of kind `model`.
struct RewardModelFolder {
  std::string label;  // of the reward
  std::string key;    // the configuration key of its path, for messages
  std::string path;
};

// Those of a job of reinforcement learning, in the order of RewardsFromSpec; none where that is an error.
std::vector<RewardModelFolder> RewardModelsOf(const v1::JobSpec& spec);

}  // namespace sluice
