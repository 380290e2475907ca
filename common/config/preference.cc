#include "common/config/preference.h"

#include <string>

#include "common/config/recipes.h"

namespace sluice {

bool LearnsFromPairs(const v1::JobSpec& spec) { return spec.preference().loss_type() != "kto"; }

bool ComparesWithReference(const v1::PreferenceSpec& preference) {
  const std::string& loss = preference.loss_type();
  return loss != "simpo" && loss != "orpo" && loss != "bradley_terry";
}

bool TrainsRewardModel(const v1::JobSpec& spec) {
  return IsPreferenceRecipe(spec.recipe()) && spec.preference().loss_type() == "bradley_terry";
}

int64_t SequencesPerRow(const v1::JobSpec& spec) {
  return IsPreferenceRecipe(spec.recipe()) && LearnsFromPairs(spec) ? 2 : 1;
}

}  // namespace sluice
