// A job's own data flow: from the file to stages, and what is said of a flow that cannot be.
#include "common/config/dataflow.h"

#include "absl/strings/str_cat.h"
#include "common/config/dataflow_graph.h"
#include "common/config/job_reader.h"
#include "common/config/recipes.h"
#include "common/config/rewards_from_spec.h"
#include "common/config/validate.h"
#include "common/config/yaml_writer.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kHead[] = "recipe: dataflow\nmodel: {path: /m}\ndata: {train_files: [/t.jsonl]}\n";

// GRPO as a flow of its own, as the documentation has it.
constexpr char kFlow[] = R"(dataflow:
  - {stage: answers, op: generate, model: actor, num_workers: 1, sampling: {n: 4, temperature: 0.7}}
  - {stage: judge, op: reward, inputs: [answers], sync: true, num_workers: 3, reward: {kind: gsm8k}}
  - {stage: adv, op: advantage, inputs: judge, estimator: rloo}
  - {stage: learn, op: update, model: actor, inputs: [adv], batch_size: 16, grad_accum_steps: 4}
)";

LoadResult Load(const std::string& text, std::vector<std::string> overrides = {}) {
  LoadOptions options;
  options.file = "job.yaml";
  options.text = kHead + text;
  options.overrides = std::move(overrides);
  options.env = [](const std::string&) { return std::nullopt; };
  options.working_folder = "/";
  return LoadJob(options);
}

std::string ErrorsOf(const LoadResult& result) { return std::string(ToStatus(result.errors).message()); }

TEST(DataflowConfigTest, OptionsOfStagesStandForKeys) {
  const LoadResult result = Load(kFlow);
  ASSERT_THAT(ErrorsOf(result), IsEmpty());
  const v1::JobSpec& spec = result.spec;
  EXPECT_EQ(spec.rollout().n(), 4);
  EXPECT_EQ(spec.rollout().temperature(), 0.7);
  EXPECT_EQ(spec.rollout().top_p(), 1.0) << "what no stage says has its default";
  EXPECT_EQ(spec.reward().kind(), "gsm8k");
  EXPECT_EQ(spec.reward().custom_reward_function().num_workers(), 3);
  EXPECT_EQ(spec.reward().custom_reward_function().timeout_s(), 10) << "and so has what lies inside an option";
  EXPECT_EQ(spec.algorithm().adv_estimator(), "rloo");
  EXPECT_EQ(spec.actor().ppo_mini_batch_size(), 64);
  const std::vector<DataflowStage> stages = DataflowOf(spec);
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[1].name, "judge");
  EXPECT_THAT(stages[1].inputs, ElementsAre("answers"));
  EXPECT_FALSE(stages[1].beside) << "sync: true";
  EXPECT_THAT(stages[2].inputs, ElementsAre("judge"));
  EXPECT_FALSE(HasStage(spec, "logprob"));
  // What is written out reads back the same.
  LoadOptions again;
  again.file = "job.yaml";
  again.text = WriteJobSpec(spec);
  again.working_folder = "/";
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec read, LoadJobSpec(again));
  EXPECT_EQ(read.DebugString(), spec.DebugString());
}

TEST(DataflowConfigTest, AKeyMaySayTheSameButNothingElse) {
  EXPECT_THAT(ErrorsOf(Load(kFlow, {"rollout.n=4"})), IsEmpty());
  EXPECT_THAT(ErrorsOf(Load(kFlow, {"rollout.n=8"})),
              HasSubstr("dataflow[0].sampling.n: stands for rollout.n, which says something else"));
  EXPECT_THAT(ErrorsOf(Load(kFlow, {"reward.kind=math"})), HasSubstr("dataflow[1].reward: stands for reward"));
  EXPECT_THAT(ErrorsOf(Load(kFlow, {"actor.ppo_mini_batch_size=16"})), HasSubstr("dataflow[3].batch_size"));
}

TEST(DataflowConfigTest, StagesRunAfterTheirInputsInWhateverOrderTheyAreListed) {
  const LoadResult result = Load(R"(dataflow:
  - {stage: learn, op: update, model: actor, inputs: [adv]}
  - {stage: adv, op: advantage, inputs: [judge, old]}
  - {stage: judge, op: reward, inputs: [answers]}
  - {stage: old, op: logprob, model: actor, inputs: [answers]}
  - {stage: answers, op: generate, model: actor}
)",
                                 {"reward.kind=gsm8k"});
  ASSERT_THAT(ErrorsOf(result), IsEmpty());
  std::vector<std::string> names;
  for (const DataflowStage& stage : DataflowOf(result.spec)) names.push_back(stage.name);
  EXPECT_THAT(names, ElementsAre("answers", "judge", "old", "adv", "learn"));
  EXPECT_TRUE(DataflowOf(result.spec)[1].beside);
}

TEST(DataflowConfigTest, EveryRecipeExpandsToAFlowThatHolds) {
  for (const Recipe& recipe : Recipes()) {
    if (recipe.kind != RecipeKind::kPolicy || recipe.name == "dataflow") continue;
    for (const bool kl : {false, true}) {
      LoadOptions options;
      options.file = "job.yaml";
      options.text = absl::StrCat("recipe: ", recipe.name, "\nmodel: {path: /m}\ndata: {train_files: [/t.jsonl]}\n",
                                  recipe.name == "distillation" ? "reference: {path: /teacher}\n" : "");
      options.overrides = {absl::StrCat("algorithm.use_kl_in_reward=", kl ? "true" : "false")};
      options.working_folder = "/";
      ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, LoadJobSpec(options));
      const std::vector<DataflowStage> stages = DataflowOf(spec);
      EXPECT_GE(stages.size(), 5u);
      EXPECT_OK(ToStatus(JudgeStages(stages, recipe.name)));
    }
  }
}

// DAPO as a flow of its own, validated and saved in stages of it.
constexpr char kFiltered[] = R"(dataflow:
  - {stage: answers, op: generate, model: actor, sampling: {n: 4}}
  - {stage: judge, op: reward, inputs: [answers], reward: {kind: gsm8k}}
  - {stage: keep, op: filter, inputs: [judge], metric: acc, max_num_gen_batches: 3}
  - {stage: old, op: logprob, model: actor, inputs: [keep]}
  - {stage: adv, op: advantage, inputs: [keep, old]}
  - {stage: learn, op: update, model: actor, inputs: [adv]}
  - {stage: save, op: checkpoint, inputs: [check], every: 20}
  - {stage: check, op: evaluate, model: actor, inputs: [learn]}
)";

TEST(DataflowConfigTest, AFilterAndWhatFollowsStepsStandForKeysToo) {
  const LoadResult result = Load(kFiltered, {"data.val_files=/v.jsonl"});
  ASSERT_THAT(ErrorsOf(result), IsEmpty());
  EXPECT_TRUE(result.spec.algorithm().filter_groups().enable());
  EXPECT_EQ(result.spec.algorithm().filter_groups().metric(), "acc");
  EXPECT_EQ(result.spec.algorithm().filter_groups().max_num_gen_batches(), 3);
  EXPECT_EQ(result.spec.trainer().test_freq(), "1");
  EXPECT_EQ(result.spec.trainer().save_freq(), "20");
  std::vector<std::string> names;
  for (const DataflowStage& stage : DataflowOf(result.spec)) names.push_back(stage.name);
  EXPECT_THAT(names, ElementsAre("answers", "judge", "keep", "old", "adv", "learn")) << "those of a step";

  const std::string val = "data.val_files=/v.jsonl";
  EXPECT_THAT(ErrorsOf(Load(kFiltered, {val, "trainer.test_freq=1", "algorithm.filter_groups.enable=true"})),
              IsEmpty());
  for (const auto& [key, place] : std::vector<std::pair<std::string, std::string>>{
           {"algorithm.filter_groups.enable=false", "dataflow[2].op: stands for algorithm.filter_groups.enable"},
           {"algorithm.filter_groups.metric=score", "dataflow[2].metric: stands for algorithm.filter_groups.metric"},
           {"algorithm.filter_groups.max_num_gen_batches=4", "dataflow[2].max_num_gen_batches: stands for"},
           {"trainer.test_freq=2", "dataflow[7].op: stands for trainer.test_freq, which says something else"},
           {"trainer.save_freq=after_each_epoch", "dataflow[6].every: stands for trainer.save_freq"}}) {
    EXPECT_THAT(ErrorsOf(Load(kFiltered, {val, key})), HasSubstr(place)) << key;
  }
}

// Two stages that score: a rule beside the others, and a sum with a reward model in it.
constexpr char kTwoRewards[] = R"(dataflow:
  - {stage: answers, op: generate, model: actor}
  - {stage: right, op: reward, inputs: [answers], num_workers: 5, reward: {kind: gsm8k}}
  - {stage: liked, op: reward, model: reward, inputs: [answers], reward: {terms: {
      model: {kind: model, path: /rm}, short: {kind: length, weight: 0.5, max_tokens: 10}}}}
  - {stage: adv, op: advantage, inputs: [right, liked], estimator: gdpo}
  - {stage: learn, op: update, model: actor, inputs: [adv]}
)";

TEST(DataflowConfigTest, SeveralStagesThatScoreHaveEachTheirOwnReward) {
  const LoadResult result = Load(kTwoRewards);
  ASSERT_THAT(ErrorsOf(result), IsEmpty());
  EXPECT_EQ(result.spec.reward().kind(), "auto") << "stands for none of them";
  const std::vector<RewardStage> stages = RewardStagesOf(result.spec);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].reward.custom_reward_function().num_workers(), 5);
  ASSERT_OK_AND_ASSIGN(const auto right, RewardsOfStage(stages[0]));
  ASSERT_OK_AND_ASSIGN(const auto liked, RewardsOfStage(stages[1]));
  ASSERT_EQ(right.size(), 1u);
  EXPECT_EQ(right[0].kind, "gsm8k");
  EXPECT_EQ(right[0].label(), "right");
  ASSERT_EQ(liked.size(), 2u);
  EXPECT_EQ(liked[0].label(), "liked/model");
  EXPECT_EQ(liked[1].label(), "liked/short");
  EXPECT_EQ(liked[1].weight, 0.5);
  EXPECT_TRUE(JudgesAnswers(result.spec));
  ASSERT_EQ(RewardModelsOf(result.spec).size(), 1u);
  EXPECT_EQ(RewardModelsOf(result.spec)[0].label, "liked/model");
  EXPECT_EQ(RewardModelsOf(result.spec)[0].key, "dataflow[2].reward.terms.model.path");
  for (const DataflowStage& stage : DataflowOf(result.spec)) {
    EXPECT_EQ(stage.beside, stage.name == "right") << stage.name;
  }
  // What is written out reads back the same.
  LoadOptions again;
  again.file = "job.yaml";
  again.text = WriteJobSpec(result.spec);
  again.working_folder = "/";
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec read, LoadJobSpec(again));
  EXPECT_EQ(read.DebugString(), result.spec.DebugString());

  EXPECT_THAT(ErrorsOf(Load(kTwoRewards, {"reward.kind=math"})),
              HasSubstr("reward: does nothing beside several stages of op reward (right, liked), each of which has"));
}

struct BadFlow {
  std::string flow;
  std::string message;
};

TEST(DataflowConfigTest, WhatCannotBeIsNamedWithItsPlace) {
  const std::string answers = "  - {stage: answers, op: generate, model: actor}\n";
  const std::string judge = "  - {stage: judge, op: reward, inputs: [answers], reward: {kind: gsm8k}}\n";
  const std::string adv = "  - {stage: adv, op: advantage, inputs: [judge]}\n";
  const std::string learn = "  - {stage: learn, op: update, model: actor, inputs: [adv]}\n";
  const std::string keep = "  - {stage: keep, op: filter, inputs: [judge]}\n";
  const std::string form =
      "  - {stage: form, op: reward, inputs: [answers], reward: {kind: length, options: {max_tokens: 9}}}\n";
  const std::string check = "  - {stage: check, op: evaluate, model: actor, inputs: [learn]}\n";
  const std::vector<BadFlow> cases = {
      {"", "dataflow: is needed by recipe dataflow"},
      {answers + answers + judge + adv + learn,
       "job.yaml:6: dataflow[1].stage: answers is the name of dataflow[0] too"},
      {answers + "  - {stage: more, op: generate, model: actor}\n" + judge + adv + learn,
       "job.yaml:6: dataflow[1].op: generate is there twice, as answers and more; a step has one"},
      {answers + judge + "  - {stage: adv, op: advantge, inputs: [judge]}\n" + learn,
       "job.yaml:7: dataflow[2].op: expected one of generate, reward,"},
      {answers + "  - {stage: judge, op: reward, inputs: [answer], reward: {kind: gsm8k}}\n" + adv + learn,
       "job.yaml:6: dataflow[1].inputs: there is no stage \"answer\" (did you mean answers?)"},
      {answers + judge + "  - {stage: adv, op: advantage}\n" + learn,
       "job.yaml:7: dataflow[2].inputs: advantage needs what reward makes: name judge"},
      {answers + judge + adv + "  - {stage: learn, op: update, inputs: [adv]}\n",
       "job.yaml:8: dataflow[3].model: is needed: update is done by a model, actor"},
      {answers + judge + adv + "  - {stage: learn, op: update, model: critic, inputs: [adv]}\n",
       "dataflow[3].model: update is done by actor, not by \"critic\""},
      {answers + judge + "  - {stage: adv, op: advantage, model: actor, inputs: [judge]}\n" + learn,
       "dataflow[2].model: advantage is done by no model; leave it out"},
      {answers + judge + adv + "  - {stage: learn, op: update, model: actor, inputs: [adv, answers]}\n",
       "dataflow[3].inputs: update cannot read answers, which is of op generate; it reads advantage, update_critic"},
      {"  - {stage: answers, op: generate, model: actor, inputs: [learn]}\n" + judge + adv + learn,
       "dataflow[0].inputs: generate begins with the prompts and reads no other stage; leave learn out"},
      {"  - {stage: answers, op: generate, model: actor, inputs: [learn]}\n" + judge + adv + learn,
       "dataflow: the stages answers -> judge -> adv -> learn -> answers wait for each other"},
      {answers + judge + "  - {stage: adv, op: advantage, inputs: [judge, adv]}\n" + learn,
       "dataflow: the stages adv -> adv wait for each other"},
      {answers + judge + learn, "dataflow: has no stage of op advantage"},
      {answers + judge + adv + learn + "  - {stage: old, op: logprob, model: actor, inputs: [answers]}\n",
       "dataflow[4].stage: nothing on the way to learn reads old; name it in the inputs of adv, or leave it out"},
      {answers + judge + "  - {stage: ref, op: ref_logprob, model: ref, inputs: [answers]}\n" +
           "  - {stage: adv, op: advantage, inputs: [judge, ref]}\n" + learn,
       "dataflow[2].op: ref_logprob does nothing without algorithm.use_kl_in_reward or actor.use_kl_loss"},
      {answers + judge + "  - {stage: adv, op: advantage, inputs: [judge], estimator: gae}\n" + learn,
       "dataflow: has no stage of op values, which algorithm.adv_estimator gae needs"},
      {"  - {stage: answers, op: generate, model: actor, estimator: grpo}\n" + judge + adv + learn,
       "dataflow[0].estimator: does nothing for op generate; it is an option of advantage"},
      {answers + judge + adv + "  - {stage: learn, op: update, model: actor, inputs: [adv], grad_accum_steps: 2}\n",
       "dataflow[3].grad_accum_steps: needs batch_size"},
      {"  - {stage: answers, op: generate, model: actor, num_workers: 8}\n" + judge + adv + learn,
       "dataflow[0].num_workers: 8 ranks are asked for, and the job has 1"},
      {"  - {stage: answers, op: generate, model: actor, sampling: {m: 3}}\n" + judge + adv + learn,
       "job.yaml:5: dataflow[0].sampling.m: unknown key"},
      {answers + judge + "  - {stage: form, op: reward, inputs: [answers]}\n" +
           "  - {stage: adv, op: advantage, inputs: [judge, form]}\n" + learn,
       "dataflow[2].reward: is needed: of several stages of op reward (judge, form) each has its own"},
      {answers + judge + form + adv + learn, "dataflow[3].inputs: advantage needs what reward makes: name form"},
      {answers + judge + form + keep + "  - {stage: adv, op: advantage, inputs: [keep]}\n" + learn,
       "dataflow[3].inputs: filter needs what reward makes: name form"},
      {answers + judge + "  - {stage: form, op: reward, inputs: [answers], reward: {kind: gsm9k}}\n" +
           "  - {stage: adv, op: advantage, inputs: [judge, form]}\n" + learn,
       "job.yaml:7: dataflow[2].reward: unknown kind of reward"},
      {answers + judge +
           "  - {stage: form, op: reward, inputs: [answers], sync: false, reward: {kind: model, options: "
           "{path: /rm}}}\n  - {stage: adv, op: advantage, inputs: [judge, form]}\n" +
           learn,
       "dataflow[2].sync: cannot be false: a reward model computes on the device"},
      {answers + judge + keep + adv + learn,
       "dataflow[3].inputs: advantage cannot read judge, of which keep leaves out a part; name keep"},
      {answers + judge + keep + "  - {stage: old, op: logprob, model: actor, inputs: [answers]}\n" +
           "  - {stage: adv, op: advantage, inputs: [keep, old]}\n" + learn,
       "dataflow[3].inputs: logprob cannot read answers, of which keep leaves out a part; name keep"},
      {answers + judge + keep + "  - {stage: old, op: logprob, model: actor}\n" +
           "  - {stage: adv, op: advantage, inputs: [keep, old]}\n" + learn,
       "dataflow[3].inputs: logprob needs what filter makes: name keep"},
      {answers + judge + "  - {stage: keep, op: filter, inputs: [answers]}\n" +
           "  - {stage: adv, op: advantage, inputs: [keep]}\n" + learn,
       "dataflow[2].inputs: filter cannot read answers, which is of op generate; it reads reward"},
      {answers + judge + "  - {stage: keep, op: filter}\n" + "  - {stage: adv, op: advantage, inputs: [keep]}\n" +
           learn,
       "dataflow[2].inputs: filter needs what reward makes: name judge"},
      {answers + "  - {stage: judge, op: reward, inputs: [answers], metric: acc, reward: {kind: gsm8k}}\n" + adv +
           learn,
       "dataflow[1].metric: does nothing for op reward; it is an option of filter"},
      {answers + "  - {stage: judge, op: reward, inputs: [answers], max_num_gen_batches: 2}\n" + adv + learn,
       "dataflow[1].max_num_gen_batches: does nothing for op reward; it is an option of filter"},
      {answers + judge + adv + learn + check, "dataflow[4].op: evaluate has no data: data.val_files is empty"},
      {answers + judge + adv + "  - {stage: learn, op: update, model: actor, inputs: [adv, check]}\n" + check,
       "dataflow[3].inputs: update cannot read check, which is of op evaluate"},
      {answers + judge + adv + learn + "  - {stage: check, op: evaluate, inputs: [learn]}\n",
       "dataflow[4].model: is needed: evaluate is done by a model, actor"},
      {answers + judge + adv + learn + "  - {stage: save, op: checkpoint}\n",
       "dataflow[4].inputs: checkpoint needs what update makes: name learn"},
      {answers + judge + adv + learn + "  - {stage: save, op: checkpoint, inputs: [learn], every: 0}\n",
       "dataflow[4].every: must be at least 1"},
      {answers + judge + adv + learn + "  - {stage: save, op: checkpoint, inputs: [learn], num_workers: 2}\n",
       "dataflow[4].num_workers: does nothing for op checkpoint, which has its ranks from pools"},
      {answers + judge + adv + "  - {stage: learn, op: update, model: actor, inputs: [adv], every: 2}\n",
       "dataflow[3].every: does nothing for op update; it is an option of evaluate and checkpoint"},
      {"  - {op: generate, model: actor}\n" + judge + adv + learn, "job.yaml:5: dataflow[0].stage: is required"},
      {"  - answers\n" + judge + adv + learn, "job.yaml:5: dataflow[0]: expected a map of keys, got a single value"},
  };
  for (const BadFlow& bad : cases) {
    const LoadResult result = Load(bad.flow.empty() ? "" : "dataflow:\n" + bad.flow);
    EXPECT_THAT(ErrorsOf(result), HasSubstr(bad.message)) << bad.flow;
  }
}

TEST(DataflowConfigTest, AFilterThatIsAskedForIsThere) {
  EXPECT_THAT(ErrorsOf(Load(kFlow, {"algorithm.filter_groups.enable=true"})),
              HasSubstr("dataflow: has no stage of op filter, which algorithm.filter_groups.enable asks for"));
}

TEST(DataflowConfigTest, AFlowNeedsItsRecipe) {
  LoadResult result = Load(kFlow, {"recipe=grpo", "reward.kind=gsm8k"});
  EXPECT_THAT(ErrorsOf(result), HasSubstr("dataflow: does nothing with recipe grpo, which has its own stages"));
  EXPECT_THAT(ErrorsOf(Load(kFlow, {"dataflow.stage=x"})), HasSubstr("is a list and is replaced whole"));
}

TEST(DataflowConfigTest, ValidationDoesNotTrustWhoSentTheJob) {
  // As the controller may get it from a client that did not look.
  v1::JobSpec spec = Load(kFlow).spec;
  spec.mutable_dataflow(2)->set_op("advance");
  spec.mutable_dataflow(3)->set_batch_size(0);
  const std::string errors(ToStatus(ValidateJobSpec(spec)).message());
  EXPECT_THAT(errors, HasSubstr("dataflow[2].op: expected one of"));
  EXPECT_THAT(errors, HasSubstr("dataflow[3].batch_size: "));
}

}  // namespace
}  // namespace sluice
