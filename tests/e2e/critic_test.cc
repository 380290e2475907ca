// PPO with a critic through the real programs, in miniature.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/e2e/policy_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Ppo(const std::vector<std::string>& overrides) {
  std::vector<std::string> all = {"recipe=ppo", "critic={optim: {lr: 2e-3}}"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return all;
}

TEST(CriticTest, IsTrainedBesideThePolicy) {
  const PolicyJob job;
  const CommandResult result = job.Run("run", Ppo({"critic.ppo_epochs=2", "algorithm.lam=0.9"}));
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto steps = job.Steps("run");
  ASSERT_EQ(steps.size(), 3u);
  for (const auto& step : steps) {
    // The critic learns first, and the policy's update is still on policy.
    EXPECT_EQ(step.at("actor/ppo_kl"), 0);
    EXPECT_EQ(step.at("actor/max_abs_log_ratio"), 0);
    EXPECT_EQ(step.at("training/updates"), 1);
    EXPECT_GT(step.at("critic/grad_norm"), 0);
    EXPECT_GT(step.at("critic/vf_loss"), 0);
    EXPECT_EQ(step.at("critic/lr"), 2e-3);
    EXPECT_LE(step.at("critic/vf_explained_var"), 1);
    EXPECT_GT(step.at("critic/values/max"), step.at("critic/values/min"));
    for (const char* name : {"critic/vf_clipfrac", "critic/vpred_mean", "critic/values/mean", "critic/returns/mean",
                             "timing_s/values", "timing_s/update_critic"}) {
      ASSERT_TRUE(step.contains(name)) << name;
      EXPECT_TRUE(std::isfinite(step.at(name))) << name;
    }
  }
  // It is exported beside the model, and another run may begin with it.
  EXPECT_THAT(job.Contents("run/huggingface/config.json"), HasSubstr("LlamaForCausalLM"));
  EXPECT_THAT(job.Contents("run/huggingface_critic/config.json"), HasSubstr("LlamaForSequenceClassification"));
  const CommandResult next =
      job.Run("next", Ppo({"critic.path=" + job.Path("run/huggingface_critic"), "trainer.total_training_steps=1"}));
  ASSERT_EQ(next.exit_code, 0) << next.output << next.errors;
  // A critic that has learned what to expect is nearer to the returns than a new one.
  EXPECT_LT(job.Steps("next")[0].at("critic/vf_loss"), steps[0].at("critic/vf_loss"));
  EXPECT_NE(job.Steps("next")[0].at("critic/values/mean"), steps[0].at("critic/values/mean"));
}

TEST(CriticTest, TwoRanksDoWhatOneDoes) {
  const PolicyJob job;
  const std::vector<std::string> overrides =
      Ppo({"actor.ppo_mini_batch_size=2", "critic.ppo_mini_batch_size=3", "critic.loss_agg_mode=seq-mean-token-mean",
           "algorithm.lam=0.95", "trainer.export_hf_model=false"});
  std::vector<std::string> two = overrides;
  two.push_back("trainer.n_gpus_per_node=2");
  const CommandResult first = job.Run("one", overrides), second = job.Run("two", two);
  ASSERT_EQ(first.exit_code, 0) << first.output << first.errors;
  ASSERT_EQ(second.exit_code, 0) << second.output << second.errors;
  const auto one = job.Steps("one"), both = job.Steps("two");
  ASSERT_EQ(one.size(), both.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(both[i].at("train/tokens"), one[i].at("train/tokens"));
    for (const char* name : {"train/loss", "critic/vf_loss", "critic/vpred_mean", "critic/values/mean",
                             "critic/returns/mean", "critic/advantages/mean", "critic/vf_clipfrac"}) {
      EXPECT_NEAR(both[i].at(name), one[i].at(name), 1e-5) << name;
    }
    for (const char* name : {"train/grad_norm", "critic/grad_norm", "critic/vf_explained_var"}) {
      EXPECT_NEAR(both[i].at(name), one[i].at(name), 1e-4) << name;
    }
  }
}

TEST(CriticTest, ARunThatIsKilledEndsWithTheSameWeights) {
  const PolicyJob job;
  const std::vector<std::string> overrides =
      Ppo({"optim.lr_scheduler_type=linear", "optim.lr_warmup_steps=1", "trainer.critic_warmup=2"});
  const CommandResult calm = job.Run("calm", overrides);
  ASSERT_EQ(calm.exit_code, 0) << calm.output << calm.errors;
  // Inside of the second step: after the values, and in the critic's update.
  for (const char* failpoint : {"engine.stage.values=2", "engine.critic_micro_batch=7"}) {
    const std::string run = std::string("killed-") + (failpoint[7] == 's' ? "stage" : "update");
    const CommandResult killed = job.Run(run, overrides, {{"SLUICE_FAILPOINTS", failpoint}});
    ASSERT_EQ(killed.exit_code, 0) << killed.output << killed.errors;
    EXPECT_THAT(killed.output + killed.errors, HasSubstr("was lost"));
    for (const char* file : {"/huggingface/model.safetensors", "/huggingface_critic/model.safetensors",
                             "/global_step_3/critic_optimizer.safetensors", "/global_step_3/training_state.json"}) {
      ASSERT_FALSE(job.Contents("calm" + std::string(file)).empty()) << file;
      EXPECT_EQ(job.Contents(run + file), job.Contents("calm" + std::string(file))) << file;
    }
  }
}

TEST(CriticTest, ThePolicyLearnsFromTheStepThatEndsTheWarmUp) {
  const PolicyJob job;
  for (const int warm_up : {0, 1, 2, 3}) {
    const std::string run = "from-" + std::to_string(warm_up);
    const CommandResult result = job.Run(run, Ppo({"trainer.critic_warmup=" + std::to_string(warm_up)}));
    ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
    const auto steps = job.Steps(run);
    ASSERT_EQ(steps.size(), 3u);
    // As verl counts: step s updates the policy where critic_warmup <= s.
    for (int step = 1; step <= 3; ++step) {
      EXPECT_EQ(steps[static_cast<size_t>(step - 1)].at("training/updates"), warm_up <= step ? 1 : 0)
          << "step " << step << " with critic_warmup " << warm_up;
    }
  }
}

TEST(CriticTest, InItsWarmUpItLearnsAlone) {
  const PolicyJob job;
  const CommandResult result = job.Run("run", Ppo({"trainer.critic_warmup=3"}));
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  const auto weights = [&](int step, const std::string& whose) {
    const std::string contents =
        job.Contents("run/global_step_" + std::to_string(step) + "/" + whose + "weights.safetensors");
    EXPECT_FALSE(contents.empty());
    return contents;
  };
  EXPECT_EQ(weights(1, ""), weights(2, ""));
  EXPECT_NE(weights(2, ""), weights(3, ""));
  EXPECT_NE(weights(1, "critic_"), weights(2, "critic_"));
  EXPECT_NE(weights(2, "critic_"), weights(3, "critic_"));
  const auto steps = job.Steps("run");
  EXPECT_EQ(steps[1].at("training/updates"), 0);
  EXPECT_EQ(steps[2].at("training/updates"), 1);
  // Without its update the policy's two forwards are left of its five.
  const auto flops_per_token = [&](size_t i) { return steps[i].at("perf/model_flops") / steps[i].at("train/tokens"); };
  EXPECT_LT(flops_per_token(1), 0.7 * flops_per_token(2));
}

TEST(CriticTest, BadInputIsNamed) {
  const PolicyJob job;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"recipe=ppo", "critic.path=" + job.Path("absent")}, "critic.path: "},
      {{"recipe=ppo", "critic.path=" + job.Path("model")}, "critic.path: "},  // has no weights
      {{"recipe=ppo", "critic.cliprange_value=0"}, "critic.cliprange_value: "},
      {{"recipe=ppo", "algorithm.lam=1.5"}, "algorithm.lam: "},
      {{"recipe=ppo", "trainer.critic_warmup=4"}, "trainer.critic_warmup: the policy would learn from step 4 on"},
      {{"recipe=ppo", "critic.optim.lr_warmup_steps=9"}, "critic.optim.lr_warmup_steps: "},
      {{"trainer.critic_warmup=1"}, "trainer.critic_warmup: has no effect"},
      {{"critic.path=" + job.Path("model")}, "critic.path: has no effect"}};
  for (const auto& [overrides, message] : cases) {
    const CommandResult result = job.Run("run", overrides);
    EXPECT_EQ(result.exit_code, 2) << overrides.back() << result.output << result.errors;
    EXPECT_THAT(result.output + result.errors, HasSubstr(message));
  }
}

TEST(CriticTest, ARunWithoutOneDoesNotGoOnWithOne) {
  const PolicyJob job;
  ASSERT_EQ(job.Run("run", {"trainer.total_training_steps=1", "trainer.export_hf_model=false"}).exit_code, 0);
  const CommandResult result = job.Run("run", Ppo({}));
  EXPECT_EQ(result.exit_code, 2) << result.output << result.errors;
  EXPECT_THAT(result.output + result.errors, HasSubstr("global_step_1 has no critic_weights.safetensors"));
}

TEST(CriticTest, ThePlanShowsIt) {
  const PolicyJob job;
  const CommandResult result =
      RunSluice({"plan", job.Path("policy.yaml"), "model={path: " + job.Path("model") + ", init: random}",
                 "data.train_files=" + job.Path("prompts.jsonl"), "recipe=ppo"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("<- score, old_logprob, values"));
  EXPECT_THAT(result.output, HasSubstr("<- advantage, update_critic"));
  EXPECT_THAT(result.output, HasSubstr("critic moments"));
  EXPECT_THAT(result.output, HasSubstr("critic activations"));
}

}  // namespace
}  // namespace sluice::testing
