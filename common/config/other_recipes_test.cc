#include "common/config/other_recipes.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/recipes.h"
#include "common/config/schema.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::string JobOf(const Recipe& recipe) {
  std::string text = absl::StrCat("recipe: ", recipe.name, "\nmodel: {path: /m}\n");
  if (recipe.name == "distillation" || recipe.name == "knowledge_distillation") text += "reference: {path: /teacher}\n";
  if (recipe.name == "dataflow") {
    text +=
        "dataflow: [{stage: a, op: generate, model: actor}, {stage: b, op: reward, inputs: a}, "
        "{stage: c, op: advantage, inputs: b}, {stage: d, op: update, model: actor, inputs: c}]\n";
  }
  return text + "data: {train_files: [/t.jsonl]}\n";
}

LoadResult Load(const std::string& text, std::vector<std::string> overrides = {}) {
  LoadOptions options;
  options.file = "job.yaml";
  options.text = text;
  options.overrides = std::move(overrides);
  options.env = [](const std::string&) { return std::nullopt; };
  options.working_folder = "/folder";
  return LoadJob(options);
}

std::string Errors(const std::string& text, std::vector<std::string> overrides = {}) {
  return std::string(ToStatus(Load(text, std::move(overrides)).errors).message());
}

// A value of the key that is not its default; what it does is not asked here.
std::string AnotherValue(const Key& key) {
  const std::string& value = key.options.default_value();
  if (!key.options.choices().empty()) {
    const auto& choices = key.options.choices();
    return choices[choices[0] == value && choices.size() > 1 ? 1 : 0];
  }
  switch (key.type) {
    case Key::Type::kText:
    case Key::Type::kTextList:
      return "other";
    case Key::Type::kInteger:
      return value == "3" ? "4" : "3";
    case Key::Type::kNumber:
      if (key.options.above() >= 1) return absl::StrCat(key.options.above() + 0.5);
      return value == "0.25" ? "0.375" : "0.25";
    case Key::Type::kTruth:
      return value == "true" ? "false" : "true";
    case Key::Type::kNumberList:
      return "[0.25, 0.375]";
    case Key::Type::kMap:
      return "{a: 1}";
  }
  return "";
}

TEST(OtherRecipesTest, EveryKeyOfAnotherKindIsSaidWithEveryRecipe) {
  int judged = 0;
  std::set<RecipeKind> kinds;
  for (const Recipe& recipe : Recipes()) {
    const bool first_of_its_kind = kinds.insert(recipe.kind).second;
    ASSERT_EQ(Errors(JobOf(recipe)), "") << recipe.name;
    for (const Section& section : Schema::Get().sections()) {
      if (section.in_list()) continue;
      for (const Key& key : section.keys) {
        const std::string given = absl::StrCat(key.path, "=", AnotherValue(key));
        if (key.IsFor(recipe.kind)) {
          if (first_of_its_kind) {
            EXPECT_THAT(Errors(JobOf(recipe), {given}), Not(HasSubstr(key.path + ": has no effect with recipe")))
                << given;
          }
          continue;
        }
        // One line for it alone, and nothing else is broken by it.
        ++judged;
        EXPECT_EQ(Errors(JobOf(recipe), {given}),
                  absl::StrCat("override ", given, ": ", key.path, ": has no effect with recipe ", recipe.name,
                               ", which is ", std::string(NameOf(recipe.kind)), "; it is for ",
                               OnlyForText(key.only_for), ": leave it out, or change the recipe"));
        // Its default, or null, is no different from leaving it out.
        if (!first_of_its_kind) continue;
        EXPECT_EQ(Errors(JobOf(recipe), {absl::StrCat(key.path, "=null")}), "");
        if (!key.options.has_default_value()) continue;
        EXPECT_EQ(Errors(JobOf(recipe), {absl::StrCat(key.path, "=", key.options.default_value())}), "") << key.path;
      }
    }
  }
  EXPECT_GE(judged, 400);
}

TEST(OtherRecipesTest, EverySectionOfAnotherKindIsOneError) {
  std::set<std::string> judged;
  for (const Section& section : Schema::Get().sections()) {
    if (section.in_list() || section.path.empty() || absl::StrContains(section.path, ".")) continue;
    std::string entries;
    for (const Key& key : section.keys) absl::StrAppend(&entries, "  ", key.name, ": ", AnotherValue(key), "\n");
    for (const Recipe& recipe : Recipes()) {
      if (section.keys.front().only_for.empty() || section.keys.front().IsFor(recipe.kind)) continue;
      if (section.keys.size() < 2) continue;
      SCOPED_TRACE(absl::StrCat(recipe.name, " with ", section.path));
      const std::string errors = Errors(absl::StrCat(JobOf(recipe), section.path, ":\n", entries));
      EXPECT_THAT(errors, HasSubstr(absl::StrCat(": ", section.path, ": ", section.keys.front().name, ", ")));
      EXPECT_THAT(errors, HasSubstr(absl::StrCat("have no effect with recipe ", recipe.name)));
      EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 0) << errors;
      judged.insert(section.path);
    }
  }
  EXPECT_THAT(judged,
              UnorderedElementsAre("algorithm", "actor", "rollout", "reward", "preference", "critic", "distillation"));
}

TEST(OtherRecipesTest, ListsAreSaidOnce) {
  const std::string stages = "dataflow: [{stage: a, op: generate}, {stage: b, op: reward}]\n";
  EXPECT_EQ(Errors(absl::StrCat(JobOf(*FindRecipe("sft")), stages, "pools: [{pool: p, ranks: 1, roles: actor}]\n")),
            "job.yaml:4: dataflow: has no effect with recipe sft, which is training on texts; it is for reinforcement "
            "learning: leave it out, or change the recipe\n"
            "job.yaml:5: pools: has no effect with recipe sft, which is training on texts; it is for reinforcement "
            "learning: leave it out, or change the recipe");
  EXPECT_EQ(Errors(JobOf(*FindRecipe("dpo")) + "dataflow: []\npools: []\n"), "");
}

TEST(OtherRecipesTest, ThePlaceIsThatOfTheFirstKey) {
  const std::string job =
      JobOf(*FindRecipe("sft")) + "algorithm:\n  gamma: 1.0\n  kl_ctrl: {type: adaptive}\n  lam: 0.5\n";
  EXPECT_EQ(Errors(job),
            "job.yaml:7: algorithm: lam, kl_ctrl.type have no effect with recipe sft, which is training on texts; they "
            "are for reinforcement learning: leave them out, or change the recipe");
  EXPECT_EQ(Errors(JobOf(*FindRecipe("sft")) + "reference: {path: m}\n"),
            "job.yaml:4: reference.path: has no effect with recipe sft, which is training on texts; it is for "
            "reinforcement learning and preference tuning and distillation on given answers: leave it out, or change "
            "the recipe");
}

TEST(OtherRecipesTest, AnUnknownRecipeIsSaidAlone) {
  EXPECT_THAT(Errors("recipe: gpro\nmodel: {path: /m}\ndata: {train_files: [/t.jsonl]}\nrollout: {n: 4}\n"),
              ::testing::AllOf(HasSubstr("recipe: "), Not(HasSubstr("rollout"))));
}

}  // namespace
}  // namespace sluice
