// The rule that belongs to a row's data source.
//
//   openai/gsm8k                                     gsm8k, strict
//   arithmetic                                       gsm8k, numeric
//   lighteval/MATH, DigitalLearningGmbH/MATH-lighteval, HuggingFaceH4/MATH-500   math
//   math_dapo, math, math_dapo_reasoning, aime...    math_dapo
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/reward/reward.h"

namespace sluice::engine {

// `further_sources`: "my_source=gsm8k, other=math", rules with their defaults; they win over the table above.
// kInvalidArgument where it is not of that form or names no rule that needs no option. Score and CheckDataSource of the
// result: kInvalidArgument names a source without a rule and the sources that have one.
absl::StatusOr<std::unique_ptr<Reward>> MakeSourceReward(const std::string& further_sources);

}  // namespace sluice::engine
