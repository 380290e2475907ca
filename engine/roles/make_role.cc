#include "engine/roles/make_role.h"

#include "common/config/recipes.h"
#include "engine/roles/distillation_role.h"
#include "engine/roles/language_model_role.h"
#include "engine/roles/policy_role.h"
#include "engine/roles/preference_role.h"

namespace sluice::engine {

std::unique_ptr<Role> MakeRole(const v1::JobSpec& spec, const RoleOptions& options) {
  switch (KindOfRecipe(spec.recipe())) {
    case RecipeKind::kText:
      return std::make_unique<LanguageModelRole>(options);
    case RecipeKind::kPolicy:
      return std::make_unique<PolicyRole>(options);
    case RecipeKind::kPreference:
      return std::make_unique<PreferenceRole>(options);
    case RecipeKind::kDistillation:
      return std::make_unique<DistillationRole>(options);
  }
  return std::make_unique<LanguageModelRole>(options);
}

}  // namespace sluice::engine
