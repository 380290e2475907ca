#include "common/config/recipes.h"

#include "common/config/job_reader.h"
#include "common/config/schema.h"
#include "common/config/testing/minimal_job.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

TEST(RecipesTest, TheTableAndTheKeysChoicesAreTheSame) {
  const auto& choices = Schema::Get().Find("recipe")->options.choices();
  ASSERT_EQ(static_cast<size_t>(choices.size()), Recipes().size());
  for (int i = 0; i < choices.size(); ++i) EXPECT_EQ(choices[i], Recipes()[static_cast<size_t>(i)].name);
}

TEST(RecipesTest, EveryDefaultIsAKeyAndAValidValue) {
  for (const Recipe& recipe : Recipes()) {
    for (const RecipeDefault& value : recipe.defaults) {
      EXPECT_NE(Schema::Get().Find(value.key), nullptr) << recipe.name << ": " << value.key;
    }
    LoadOptions options;
    options.file = "job.yaml";
    options.text = "recipe: " + recipe.name + "\nmodel: {path: /m}\ndata: {train_files: [/t.jsonl]}\n";
    options.working_folder = "/";
    EXPECT_OK(LoadJobSpec(options)) << recipe.name;
  }
}

TEST(RecipesTest, AGivenKeyWinsOverTheRecipe) {
  LoadOptions options;
  options.file = "job.yaml";
  options.text = "recipe: gspo\nmodel: {path: /m}\ndata: {train_files: [/t.jsonl]}\nactor: {clip_ratio_high: 0.1}\n";
  options.working_folder = "/";
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec gspo, LoadJobSpec(options));
  EXPECT_EQ(gspo.actor().policy_loss().loss_mode(), "gspo");
  EXPECT_EQ(gspo.actor().clip_ratio_low(), 3e-4);
  EXPECT_EQ(gspo.actor().clip_ratio_high(), 0.1);
  EXPECT_EQ(gspo.algorithm().adv_estimator(), "grpo");
  options.overrides = {"recipe=rloo", "actor={entropy_coeff: 0.5}"};
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec rloo, LoadJobSpec(options));
  EXPECT_EQ(rloo.algorithm().adv_estimator(), "rloo");
  EXPECT_EQ(rloo.actor().policy_loss().loss_mode(), "vanilla");
  EXPECT_FALSE(rloo.actor().has_clip_ratio_high());
}

}  // namespace
}  // namespace sluice
