#include "common/config/recipes.h"

#include "common/config/dataflow.h"
#include "common/config/job_reader.h"
#include "common/config/preference.h"
#include "common/config/rewards_from_spec.h"
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
    if (recipe.name == "distillation" || recipe.name == "knowledge_distillation")
      *options.text += "reference: {path: /teacher}\n";
    if (recipe.name == "dataflow") {
      *options.text +=
          "dataflow: [{stage: a, op: generate, model: actor}, {stage: b, op: reward, inputs: a}, "
          "{stage: c, op: advantage, inputs: b}, {stage: d, op: update, model: actor, inputs: c}]\n";
    }
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

TEST(RecipesTest, DistillationComparesWithItsTeacherAndGivesWayToRewards) {
  LoadOptions options;
  options.file = "job.yaml";
  options.text =
      "recipe: distillation\nmodel: {path: /m}\ndata: {train_files: [/t.jsonl]}\nreference: {path: /teacher}\n";
  options.working_folder = "/";
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec alone, LoadJobSpec(options));
  EXPECT_TRUE(ComparesWithAnother(alone));
  EXPECT_EQ(alone.reward().kind(), "none");
  EXPECT_FALSE(JudgesAnswers(alone.reward()));
  EXPECT_EQ(alone.actor().kl_loss_coef(), 1);
  EXPECT_TRUE(RewardModelsOf(alone).empty());
  EXPECT_EQ(DataflowOf(alone)[1].model, "");
  options.overrides = {"reward={terms: {liked: {kind: model, path: /rm}, short: {kind: length, max_tokens: 9}}}"};
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec judged, LoadJobSpec(options));
  EXPECT_TRUE(JudgesAnswers(judged.reward()));
  ASSERT_EQ(RewardModelsOf(judged).size(), 1u);
  EXPECT_EQ(RewardModelsOf(judged)[0].label, "liked");
  EXPECT_EQ(RewardModelsOf(judged)[0].key, "reward.terms.liked.path");
  EXPECT_EQ(RewardModelsOf(judged)[0].path, "/rm");
  EXPECT_EQ(DataflowOf(judged)[1].model, "reward");
}

TEST(RecipesTest, ALossOfPreferencesMayReplaceTheRecipesOwn) {
  LoadOptions options;
  options.file = "job.yaml";
  options.text = "recipe: dpo\nmodel: {path: /m}\ndata: {train_files: [/t.jsonl]}\npreference: {loss_type: hinge}\n";
  options.working_folder = "/";
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec hinge, LoadJobSpec(options));
  EXPECT_EQ(hinge.preference().loss_type(), "hinge");
  EXPECT_TRUE(NeedsReference(hinge));
  EXPECT_EQ(SequencesPerRow(hinge), 2);
  options.overrides = {"recipe=simpo", "preference={label_smoothing: 0.1}"};
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec simpo, LoadJobSpec(options));
  EXPECT_EQ(simpo.preference().loss_type(), "simpo");
  EXPECT_EQ(simpo.preference().beta(), 2.0);
  EXPECT_FALSE(NeedsReference(simpo));
  options.overrides = {"recipe=kto", "preference={}"};
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec kto, LoadJobSpec(options));
  EXPECT_EQ(kto.data().response_key(), "completion");
  EXPECT_EQ(SequencesPerRow(kto), 1);
  options.overrides = {"recipe=reward_model", "preference={}"};
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec reward_model, LoadJobSpec(options));
  EXPECT_EQ(reward_model.preference().loss_type(), "bradley_terry");
  EXPECT_FALSE(NeedsReference(reward_model));
  EXPECT_TRUE(TrainsRewardModel(reward_model));
  EXPECT_EQ(SequencesPerRow(reward_model), 2);
  options.overrides = {"recipe=sft", "preference={}"};
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec sft, LoadJobSpec(options));
  EXPECT_FALSE(NeedsReference(sft));
  EXPECT_EQ(SequencesPerRow(sft), 1);
}

}  // namespace
}  // namespace sluice
