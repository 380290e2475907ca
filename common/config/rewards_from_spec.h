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

// The name of the stage that scores in the data flows of recipes.
inline constexpr char kRewardStageOfRecipes[] = "score";

// A stage of the data flow that scores, and what it scores by.
struct RewardStage {
  std::string stage;      // its name
  std::string prefix;     // of its section's keys: empty, or "dataflow[1]."
  v1::RewardSpec reward;  // the section: `reward`, or the stage's own where there are several
};

// Those of a job of reinforcement learning, in the order of the data flow's list. Their scores are added up.
std::vector<RewardStage> RewardStagesOf(const v1::JobSpec& spec);

// RewardsFromSpec of the stage's section. Of several stages the rewards have the stage's name, or that and a slash
// before the term's. InvalidArgument begins with the key, prefix and all.
absl::StatusOr<std::vector<RewardSpec>> RewardsOfStage(const RewardStage& stage);

// Whether any of the job's stages judges answers.
bool JudgesAnswers(const v1::JobSpec& spec);

// Whether a reward of kind `model` is among the stage's.
bool HasRewardModel(const RewardStage& stage);

// A reward of kind `model`.
struct RewardModelFolder {
  std::string label;  // of the reward
  std::string key;    // the configuration key of its path, for messages
  std::string path;
};

// Those of a job of reinforcement learning, in the order of its stages and of RewardsOfStage; none of a stage where
// that is an error.
std::vector<RewardModelFolder> RewardModelsOf(const v1::JobSpec& spec);

}  // namespace sluice
