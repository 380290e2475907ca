// The recipes: names for sets of defaults. A recipe changes the default of some keys; a key that the job gives wins.
// One row here, and its name in job.proto's choices for `recipe`, is all that a recipe of an existing kind takes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class RecipeKind {
  kText,    // learns from texts that are given: sft, pretrain
  kPolicy,  // answers prompts and learns from rewards
};

struct RecipeDefault {
  std::string key;    // full path
  std::string value;  // as written in YAML
};

struct Recipe {
  std::string name;
  RecipeKind kind = RecipeKind::kText;
  std::string doc;
  std::vector<RecipeDefault> defaults;
};

const std::vector<Recipe>& Recipes();

// nullptr: there is none of this name.
const Recipe* FindRecipe(std::string_view name);

// Whether the job's model answers prompts and learns from rewards.
bool IsPolicyRecipe(std::string_view name);

}  // namespace sluice
