// Preference tuning through the real programs, in miniature.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/e2e/preference_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRecipes[] = {"dpo", "ipo", "orpo", "simpo", "kto", "reward_model"};

TEST(PreferenceTest, EveryRecipeRuns) {
  const PreferenceJob job;
  for (const char* recipe : kRecipes) {
    const CommandResult result = job.Run(recipe, recipe);
    ASSERT_EQ(result.exit_code, 0) << recipe << result.output << result.errors;
    const auto steps = job.Steps(recipe);
    ASSERT_EQ(steps.size(), 5u) << recipe;
    for (const char* name : {"rewards/chosen", "rewards/rejected", "rewards/margins"}) {
      EXPECT_TRUE(steps[0].contains(name)) << recipe << " " << name;
    }
    // A reward model has no probabilities.
    const bool values = std::string(recipe) == "reward_model";
    for (const char* name : {"logps/chosen", "logps/rejected"}) EXPECT_EQ(steps[0].contains(name), !values) << recipe;
    const bool pairs = std::string(recipe) != "kto";
    EXPECT_EQ(steps[0].contains("rewards/accuracies"), pairs) << recipe;
    EXPECT_EQ(steps[0].contains("kl"), !pairs) << recipe;
    EXPECT_EQ(steps[0].contains("nll_loss"), std::string(recipe) == "orpo") << recipe;
    EXPECT_EQ(steps[0].contains("timing_s/reference"),
              !values && std::string(recipe) != "orpo" && std::string(recipe) != "simpo")
        << recipe;
    EXPECT_EQ(steps[0].at("train/samples"), 6);
    EXPECT_GT(steps[0].at("train/grad_norm"), 0) << recipe;
    // Before the first step, and after the last.
    const auto validations = job.Validations(recipe);
    ASSERT_EQ(validations.size(), 2u) << recipe;
    EXPECT_LT(validations[1].at("val/loss"), validations[0].at("val/loss")) << recipe;
    EXPECT_GT(validations[1].at("val/rewards/margins"), validations[0].at("val/rewards/margins")) << recipe;
    EXPECT_EQ(validations[1].at("val/samples"), pairs ? 6 : 12);
    EXPECT_FALSE(job.Contents(std::string(recipe) + "/huggingface/model.safetensors").empty());
  }
  // 20 pairs, 6 a step: the fourth step of an epoch has the rest.
  EXPECT_EQ(job.Steps("dpo")[3].at("train/samples"), 2);
}

TEST(PreferenceTest, TheFirstStepComparesTheModelWithItself) {
  const PreferenceJob job;
  for (const char* loss : {"sigmoid", "hinge", "ipo", "kto"}) {
    const std::string recipe = std::string(loss) == "kto" ? "kto" : "dpo";
    const CommandResult result = job.Run(
        recipe, loss, {std::string("preference.loss_type=") + loss, "trainer.total_training_steps=1", "optim.lr=0"});
    ASSERT_EQ(result.exit_code, 0) << loss << result.output << result.errors;
    const auto step = job.Steps(loss).at(0);
    EXPECT_EQ(step.at("rewards/chosen"), 0) << loss;
    EXPECT_EQ(step.at("rewards/rejected"), 0) << loss;
    const double at_no_difference = std::string(loss) == "sigmoid" ? std::log(2.0)
                                    : std::string(loss) == "hinge" ? 1
                                    : std::string(loss) == "ipo"   ? 25  // (1 / (2 beta))^2
                                                                   : 0.5;
    EXPECT_NEAR(step.at("train/loss"), at_no_difference, 1e-12) << loss;
    EXPECT_NEAR(job.Validations(loss).at(0).at("val/loss"), at_no_difference, 1e-12) << loss;
  }
}

TEST(PreferenceTest, AnotherModelMayBeTheReference) {
  const PreferenceJob job;
  ASSERT_EQ(job.Run("simpo", "simpo").exit_code, 0);
  const std::vector<std::string> one_step = {"reference={path: " + job.Path("simpo/huggingface") + "}",
                                             "trainer.total_training_steps=1", "trainer.export_hf_model=false"};
  const CommandResult result = job.Run("dpo", "dpo", one_step);
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  // The reference prefers the better answers already: the model as it begins is behind it.
  EXPECT_LT(job.Steps("dpo").at(0).at("rewards/margins"), 0);
  EXPECT_GT(job.Steps("dpo").at(0).at("train/loss"), std::log(2.0));
}

TEST(PreferenceTest, OnlyEvaluates) {
  const PreferenceJob job;
  const CommandResult simpo = job.Run("simpo", "simpo", {"engine.forward_only=true", "data.val_max_samples=4"});
  ASSERT_EQ(simpo.exit_code, 0) << simpo.output << simpo.errors;
  EXPECT_THAT(simpo.output, HasSubstr("(4 rows, "));
  // With a reference model it is compared with itself.
  const CommandResult dpo = job.Run("dpo", "dpo", {"engine.forward_only=true"});
  ASSERT_EQ(dpo.exit_code, 0) << dpo.output << dpo.errors;
  EXPECT_THAT(dpo.output, HasSubstr("validation after step 0  loss 0.6931  (6 rows, "));
}

TEST(PreferenceTest, MarginAndAccuracyRise) {
  const PreferenceJob job;
  const CommandResult result =
      job.Run("dpo", "run", {"trainer.total_training_steps=30", "trainer.test_freq=10", "trainer.save_freq=-1"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto steps = job.Steps("run");
  ASSERT_EQ(steps.size(), 30u);
  EXPECT_GT(steps.back().at("rewards/accuracies"), 0.9);
  EXPECT_GT(steps.back().at("rewards/margins"), 0.5);
  EXPECT_LT(steps.back().at("train/loss"), 0.5 * steps.front().at("train/loss"));
  const auto validations = job.Validations("run");
  ASSERT_EQ(validations.size(), 4u);
  for (size_t i = 1; i < validations.size(); ++i) {
    EXPECT_GT(validations[i].at("val/rewards/margins"), validations[i - 1].at("val/rewards/margins"));
  }
  EXPECT_GT(validations.back().at("val/rewards/accuracies"), 0.9);
}

TEST(PreferenceTest, ARewardModelLearnsToRank) {
  const PreferenceJob job;
  const CommandResult result = job.Run(
      "reward_model", "run", {"trainer.total_training_steps=30", "trainer.test_freq=10", "trainer.save_freq=-1"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_THAT(result.output, HasSubstr("accuracy "));
  const auto steps = job.Steps("run"), validations = job.Validations("run");
  ASSERT_EQ(steps.size(), 30u);
  EXPECT_NEAR(steps.front().at("train/loss"), std::log(2.0), 0.1) << "a new head tells nothing";
  EXPECT_LT(steps.back().at("train/loss"), 0.1);
  EXPECT_GT(steps.back().at("rewards/accuracies"), 0.9);
  ASSERT_EQ(validations.size(), 4u);
  EXPECT_GT(validations.back().at("val/rewards/accuracies"), 0.9);
  EXPECT_GT(validations.back().at("val/rewards/margins"), 1);
  EXPECT_THAT(job.Contents("run/huggingface/config.json"), HasSubstr("LlamaForSequenceClassification"));
  EXPECT_THAT(job.Contents("run/huggingface/model.safetensors"), HasSubstr("score.weight"));
  // Another run may begin with it, and goes on where this one ended.
  const std::vector<std::string> from = {"model={path: " + job.Path("run/huggingface") + "}",
                                         "trainer.total_training_steps=1", "trainer.export_hf_model=false"};
  const CommandResult next = job.Run("reward_model", "next", from);
  ASSERT_EQ(next.exit_code, 0) << next.output << next.errors;
  EXPECT_NEAR(job.Validations("next").front().at("val/loss"), validations.back().at("val/loss"), 1e-6);
}

TEST(PreferenceTest, ARewardModelsMarginAndCentreAreInItsLoss) {
  const PreferenceJob job;
  std::string rows;
  for (int i = 0; i < 6; ++i) {
    rows += R"({"prompt": "a)" + std::to_string(i) + R"(", "chosen": "b", "rejected": "c", "by": )" +
            std::to_string(i % 2 == 0 ? 40 : 0) + "}\n";
  }
  job.Write("margin.jsonl", rows);
  const auto loss = [&](const std::string& run, std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"data.train_files=" + job.Path("margin.jsonl"), "data.shuffle=false",
                                       "trainer.total_training_steps=1", "trainer.export_hf_model=false"});
    const CommandResult result = job.Run("reward_model", run, overrides);
    EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
    return job.Steps(run).at(0);
  };
  const auto plain = loss("plain", {}), margin = loss("margin", {"data.margin_key=by"}),
             centred = loss("centred", {"preference.center_rewards_coefficient=10"});
  // Half of the pairs have to be 40 apart: -log sigmoid(d - 40) = 40 - d, where d is nearly 0.
  EXPECT_NEAR(margin.at("train/loss") - plain.at("train/loss"), 20 - std::log(2.0) / 2, 0.3);
  EXPECT_EQ(margin.at("rewards/margins"), plain.at("rewards/margins"));
  const double mean = centred.at("rewards/chosen") + centred.at("rewards/rejected");
  EXPECT_GE(centred.at("train/loss") - plain.at("train/loss"), 10 * mean * mean * 0.99);
}

TEST(PreferenceTest, RanksAndPackingChangeNothing) {
  const PreferenceJob job;
  const std::vector<std::string> common = {"trainer.export_hf_model=false", "trainer.total_training_steps=2",
                                           "trainer.save_freq=-1"};
  for (const char* recipe : kRecipes) {
    const std::string one = std::string(recipe) + "-one";
    const CommandResult first = job.Run(recipe, one, common);
    ASSERT_EQ(first.exit_code, 0) << recipe << first.output << first.errors;
    const std::vector<std::pair<std::string, std::string>> others = {{"-two", "trainer.n_gpus_per_node=2"},
                                                                     {"-tight", "data.max_token_len_per_gpu=96"},
                                                                     {"-wide", "data.max_token_len_per_gpu=512"}};
    for (const auto& [name, override] : others) {
      const std::string run = recipe + name;
      const CommandResult second = job.Run(recipe, run, [&] {
        std::vector<std::string> overrides = common;
        overrides.push_back(override);
        return overrides;
      }());
      ASSERT_EQ(second.exit_code, 0) << run << second.output << second.errors;
      const auto a = job.Steps(one), b = job.Steps(run);
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].at("train/tokens"), b[i].at("train/tokens")) << run;
        for (const char* key : {"train/loss", "train/grad_norm", "rewards/margins", "rewards/chosen"}) {
          EXPECT_NEAR(a[i].at(key), b[i].at(key), 1e-5 * std::max(1.0, std::abs(a[i].at(key)))) << run << " " << key;
        }
      }
      EXPECT_NEAR(job.Validations(one).back().at("val/loss"), job.Validations(run).back().at("val/loss"), 1e-5) << run;
    }
    EXPECT_GT(job.Steps(std::string(recipe) + "-tight")[0].at("train/micro_batches"),
              job.Steps(std::string(recipe) + "-wide")[0].at("train/micro_batches"));
  }
}

TEST(PreferenceTest, ARunThatIsKilledEndsWithTheSameWeights) {
  const PreferenceJob job;
  for (const char* recipe : {"dpo", "kto", "reward_model"}) {
    const std::string calm = std::string(recipe) + "-calm", killed = std::string(recipe) + "-killed";
    const CommandResult first = job.Run(recipe, calm);
    ASSERT_EQ(first.exit_code, 0) << first.output << first.errors;
    // In the second epoch's first step.
    const int64_t micro_batches = [&] {
      double before = 0;
      const auto steps = job.Steps(calm);
      for (size_t i = 0; i < 2; ++i) before += steps[i].at("train/micro_batches");
      return static_cast<int64_t>(before) + 1;
    }();
    const CommandResult second =
        job.Run(recipe, killed, {}, {{"SLUICE_FAILPOINTS", "engine.micro_batch=" + std::to_string(micro_batches)}});
    ASSERT_EQ(second.exit_code, 0) << second.output << second.errors;
    EXPECT_THAT(second.output + second.errors, HasSubstr("was lost"));
    EXPECT_EQ(job.Contents(killed + "/huggingface/model.safetensors"),
              job.Contents(calm + "/huggingface/model.safetensors"));
    EXPECT_EQ(job.Steps(killed).back().at("rewards/margins"), job.Steps(calm).back().at("rewards/margins"));
  }
}

TEST(PreferenceTest, BadInputIsNamed) {
  const PreferenceJob job;
  const std::string good = R"({"prompt": "a", "chosen": "b", "rejected": "c"})"
                           "\n";
  job.Write("missing.jsonl", good + R"({"prompt": "a", "chosen": "b"})"
                                    "\n");
  job.Write("equal.jsonl", good + R"({"prompt": "a", "chosen": "b", "rejected": "b"})"
                                  "\n");
  job.Write("empty_prompt.jsonl", good + R"({"prompt": "", "chosen": "b", "rejected": "c"})"
                                         "\n");
  job.Write("empty_answer.jsonl", good + R"({"prompt": "a", "chosen": "", "rejected": "c"})"
                                         "\n");
  job.Write("mixed.jsonl", good +
                               R"({"prompt": "a", "chosen": [{"role": "assistant", "content": "b"}], "rejected": "c"})"
                               "\n");
  job.Write("long.jsonl", good + R"({"prompt": "a", "chosen": ")" + std::string(400, 'x') +
                              R"(", "rejected": "c"})"
                              "\n");
  job.Write("label.jsonl", R"({"prompt": "a", "completion": "b", "label": "good"})"
                           "\n");
  job.Write("no_label.jsonl", R"({"prompt": "a", "completion": "b"})"
                              "\n");
  const auto train = [&](const char* file) { return "data.train_files=" + job.Path(file); };
  job.Write("margin.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "c", "margin": "much"})"
                            "\n");
  const struct {
    const char* recipe;
    std::string override;
    std::vector<std::string> messages;
  } cases[] = {
      {"dpo", train("missing.jsonl"), {"missing.jsonl:2", "rejected"}},
      {"dpo", train("equal.jsonl"), {"equal.jsonl:2", "the same"}},
      {"dpo", train("empty_prompt.jsonl"), {"empty_prompt.jsonl:2", "prompt"}},
      {"dpo", train("empty_answer.jsonl"), {"empty_answer.jsonl:2", "chosen"}},
      {"dpo", train("mixed.jsonl"), {"mixed.jsonl:2"}},
      {"dpo", train("long.jsonl"), {"long.jsonl:2", "max_length"}},
      {"dpo", train("labelled.jsonl"), {"labelled.jsonl:1", "chosen"}},
      {"dpo", "data.val_files=" + job.Path("missing.jsonl"), {"data.val_files: ", "missing.jsonl:2"}},
      {"kto", train("label.jsonl"), {"label.jsonl:1", "label"}},
      {"kto", train("no_label.jsonl"), {"no_label.jsonl:1", "label"}},
      {"kto", train("pairs.jsonl"), {"pairs.jsonl:1", "completion"}},
      {"kto", "data.train_batch_size=1", {"data.train_batch_size: "}},
      {"dpo", "data.max_token_len_per_gpu=95", {"data.max_length: a pair of two answers of 48 tokens"}},
      {"dpo", "preference.beta=0", {"preference.beta: "}},
      {"dpo", "preference.label_smoothing=0.5", {"preference.label_smoothing: "}},
      {"dpo", "preference.loss_type=sigmiod", {"preference.loss_type: expected one of"}},
      {"dpo", "data.truncation=middle", {"data.truncation: "}},
      {"dpo", "data.format=messages", {"data.format: "}},
      {"reward_model", train("labelled.jsonl"), {"labelled.jsonl:1", "chosen"}},
      {"reward_model", train("margin.jsonl"), {"margin.jsonl:1", "column \"margin\""}},
      {"reward_model", "preference.center_rewards_coefficient=-1", {"preference.center_rewards_coefficient: "}},
      {"reward_model", "reference.path=" + job.Path("model"), {"reference.path: has no effect"}},
      {"dpo", "reference.path=" + job.Path("absent"), {"reference.path: ", "no such folder"}},
      {"dpo", "reference.path=" + job.Path("model"), {"reference.path: ", "no *.safetensors"}},
  };
  for (const auto& bad : cases) {
    const CommandResult result = job.Run(bad.recipe, "bad", {bad.override});
    EXPECT_EQ(result.exit_code, 2) << bad.override << result.output << result.errors;
    for (const std::string& message : bad.messages) {
      EXPECT_THAT(result.output + result.errors, HasSubstr(message)) << bad.override;
    }
  }
}

TEST(PreferenceTest, ThePlanSpeaksOfPairs) {
  const PreferenceJob job;
  const auto plan = [&](const char* recipe) {
    std::vector<std::string> arguments = job.Arguments(recipe);
    arguments.insert(arguments.begin(), "plan");
    const CommandResult result = RunSluice(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  };
  EXPECT_THAT(plan("dpo"), HasSubstr("pairs per step              6"));
  EXPECT_THAT(plan("dpo"), HasSubstr("reference model"));
  EXPECT_THAT(plan("kto"), HasSubstr("labelled answers per step   6"));
  EXPECT_THAT(plan("simpo"), ::testing::Not(HasSubstr("reference model")));
  EXPECT_THAT(plan("reward_model"), HasSubstr("pairs per step              6"));
  EXPECT_THAT(plan("reward_model"), HasSubstr("a head of one number takes the place"));
}

}  // namespace
}  // namespace sluice::testing
