// The recipes: names for sets of defaults. A recipe changes the default of some keys; a key that the job gives wins.
// One row here, and its name in job.proto's choices for `recipe`, is all that a recipe of an existing kind takes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sluice/v1/config_options.pb.h"

namespace sluice {

// The numbers are those of KeyOptions::RecipeKind, by which a key says what it is for.
enum class RecipeKind {
  kText = v1::KeyOptions::TEXT,              // learns from texts that are given: sft, pretrain
  kPolicy = v1::KeyOptions::POLICY,          // answers prompts and learns from rewards
  kPreference = v1::KeyOptions::PREFERENCE,  // learns which of the answers that are given are better, or to tell them
  kDistillation = v1::KeyOptions::DISTILLATION,  // learns a teacher's distributions over the tokens of given answers
};

// "reinforcement learning", "preference tuning", "training on texts", ...: for people.
std::string_view NameOf(RecipeKind kind);

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

// kText where there is none of this name.
RecipeKind KindOfRecipe(std::string_view name);

// Whether the job's model answers prompts and learns from rewards.
bool IsPolicyRecipe(std::string_view name);

// Whether it learns which of the answers that are given are better.
bool IsPreferenceRecipe(std::string_view name);

// Whether its data are texts that are learned as they are, with a teacher or without: the rows of recipe sft.
bool LearnsGivenTexts(std::string_view name);

}  // namespace sluice
