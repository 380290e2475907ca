#include "common/config/preference.h"

#include "common/config/recipes.h"

namespace sluice {

bool LearnsFromPairs(const v1::JobSpec& spec) { return spec.preference().loss_type() != "kto"; }

bool ComparesWithReference(const v1::PreferenceSpec& preference) {
  return preference.loss_type() != "simpo" && preference.loss_type() != "orpo";
}

int64_t SequencesPerRow(const v1::JobSpec& spec) {
  return IsPreferenceRecipe(spec.recipe()) && LearnsFromPairs(spec) ? 2 : 1;
}

}  // namespace sluice
