#include "common/config/validate.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "common/config/frequency.h"
#include "common/config/job_reader.h"
#include "common/config/rewards_from_spec.h"
#include "common/config/steps.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A valid job, changed by `change`, judged.
template <typename Change>
std::string Judge(Change change, const JobFacts& facts = {}) {
  LoadOptions options;
  options.file = "job.yaml";
  options.text = "model: {path: m}\ndata: {train_files: t, train_batch_size: 8}\n";
  options.env = [](const std::string&) { return std::nullopt; };
  options.working_folder = "/folder";
  auto spec = LoadJobSpec(options);
  EXPECT_TRUE(spec.ok()) << spec.status();
  change(*spec);
  return std::string(ToStatus(ValidateJobSpec(*spec, facts)).message());
}

TEST(ValidateTest, ValidJobHasNoError) {
  EXPECT_THAT(Judge([](v1::JobSpec&) {}), IsEmpty());
  EXPECT_THAT(Judge([](v1::JobSpec&) {}, {.train_rows = 100}), IsEmpty());
}

TEST(ValidateTest, WorldSizeShowsTheArithmetic) {
  EXPECT_EQ(Judge([](v1::JobSpec& s) {
              s.mutable_engine()->set_dp_size(4);
              s.mutable_trainer()->set_nnodes(2);
              s.mutable_trainer()->set_n_gpus_per_node(3);
            }),
            "engine.dp_size: 4 data-parallel ranks do not match the world size: trainer.nnodes 2 * "
            "trainer.n_gpus_per_node 3 = 6 "
            "(leave dp_size out, or make both equal)");
  EXPECT_THAT(Judge([](v1::JobSpec& s) {
                s.mutable_engine()->set_dp_size(4);
                s.mutable_trainer()->set_nnodes(2);
                s.mutable_trainer()->set_n_gpus_per_node(2);
              }),
              IsEmpty());
}

TEST(ValidateTest, BatchDividesByTheRanks) {
  EXPECT_EQ(Judge([](v1::JobSpec& s) { s.mutable_trainer()->set_n_gpus_per_node(3); }),
            "data.train_batch_size: 8 rows do not divide by 3 ranks (8 = 2 * 3 + 2); use 6 or 9");
  EXPECT_THAT(Judge([](v1::JobSpec& s) { s.mutable_trainer()->set_n_gpus_per_node(16); }), HasSubstr("; use 16"));
}

TEST(ValidateTest, LongestRowFitsIntoAMicroBatch) {
  EXPECT_EQ(Judge([](v1::JobSpec& s) { s.mutable_data()->set_max_length(8193); }),
            "data.max_length: a row of 8193 tokens does not fit into a micro-batch of data.max_token_len_per_gpu 8192; "
            "lower the "
            "first or raise the second");
  EXPECT_THAT(Judge([](v1::JobSpec& s) { s.mutable_data()->set_max_length(8192); }), IsEmpty());
}

TEST(ValidateTest, Resume) {
  EXPECT_THAT(Judge([](v1::JobSpec& s) { s.mutable_trainer()->set_resume_mode("resume_path"); }),
              HasSubstr("trainer.resume_from_path: is needed by"));
  EXPECT_THAT(Judge([](v1::JobSpec& s) { s.mutable_trainer()->set_resume_from_path("/c/global_step_3"); }),
              HasSubstr("has no effect with trainer.resume_mode auto"));
}

TEST(ValidateTest, WarmupIsShorterThanTheRun) {
  const auto warmup = [](int64_t steps) {
    return [steps](v1::JobSpec& s) { s.mutable_optim()->set_lr_warmup_steps(steps); };
  };
  EXPECT_THAT(Judge(warmup(1000)), IsEmpty());  // the length of the run is not known yet
  EXPECT_THAT(Judge(warmup(13), {.train_rows = 100}),
              HasSubstr("optim.lr_warmup_steps: warm-up takes 13 steps, but the run has only 13"));
  EXPECT_THAT(Judge(warmup(12), {.train_rows = 100}), IsEmpty());
  EXPECT_THAT(Judge([](v1::JobSpec& s) {
                s.mutable_optim()->set_lr_warmup_steps(5);
                s.mutable_trainer()->set_total_training_steps(5);
              }),
              HasSubstr("the run has only 5"));
}

TEST(ValidateTest, StableDecayNeedsItsLength) {
  EXPECT_EQ(Judge([](v1::JobSpec& s) { s.mutable_optim()->set_lr_scheduler_type("WSD"); }),
            "optim.lr_wsd_decay_steps: is needed by optim.lr_scheduler_type WSD: the steps of the final decay");
  EXPECT_THAT(Judge(
                  [](v1::JobSpec& s) {
                    s.mutable_optim()->set_lr_scheduler_type("WSD");
                    s.mutable_optim()->set_lr_wsd_decay_steps(14);
                  },
                  {.train_rows = 100}),
              HasSubstr("optim.lr_wsd_decay_steps: WSD needs between 1 and 13"));
}

TEST(ValidateTest, ConstantWeightDecayHasOneValue) {
  EXPECT_THAT(
      Judge([](v1::JobSpec& s) { s.mutable_optim()->set_end_weight_decay(0.5); }),
      HasSubstr("optim.wd_incr_style: constant, but start_weight_decay (0.01) and end_weight_decay (0.5) differ"));
}

TEST(ValidateTest, NamesFrequenciesRowsAndContents) {
  const std::string errors = Judge([](v1::JobSpec& s) {
    s.set_name("a b");
    s.mutable_trainer()->set_save_freq("0");
    s.mutable_trainer()->set_test_freq("weekly");
    s.mutable_data()->set_train_max_samples(0);
    s.mutable_checkpoint()->add_save_contents("model");
    s.mutable_engine()->set_forward_only(true);
  });
  EXPECT_THAT(errors, AllOf(HasSubstr("name: \"a b\" is not a job name"),
                            HasSubstr("trainer.save_freq: expected a number of steps"),
                            HasSubstr("trainer.test_freq: expected"), HasSubstr("data.train_max_samples: 0 rows"),
                            HasSubstr("checkpoint.save_contents: model is listed twice"),
                            HasSubstr("engine.forward_only: only evaluates")));
  EXPECT_THAT(Judge([](v1::JobSpec&) {}, {.train_rows = 0}), HasSubstr("data.train_files: hold no row"));
  EXPECT_THAT(Judge([](v1::JobSpec& s) { s.set_name(std::string(64, 'a')); }), HasSubstr("at most 63"));
  EXPECT_THAT(Judge([](v1::JobSpec& s) { s.set_name("../etc"); }), HasSubstr("is not a job name"));
}

TEST(ValidateTest, SpecificationsThatNoReaderHasSeen) {
  const std::string errors(ToStatus(ValidateJobSpec(v1::JobSpec())).message());
  EXPECT_THAT(
      errors,
      AllOf(HasSubstr("model.path: is required"), HasSubstr("recipe: expected one of sft, pretrain, dpo,"),
            HasSubstr("optim.betas: has 0 elements"), HasSubstr("data.train_batch_size: must be at least 1, is 0")));
  EXPECT_THAT(Judge([](v1::JobSpec& s) { s.mutable_optim()->set_betas(1, 1.0); }),
              "optim.betas[1]: must be below 1, is 1");
  EXPECT_THAT(Judge([](v1::JobSpec& s) { s.mutable_trainer()->set_n_gpus_per_node(0); }),
              "trainer.n_gpus_per_node: must be at least 1, is 0");
}

TEST(FrequencyTest, Due) {
  ASSERT_OK_AND_ASSIGN(const Frequency end, ParseFrequency("-1"));
  ASSERT_OK_AND_ASSIGN(const Frequency four, ParseFrequency("4"));
  ASSERT_OK_AND_ASSIGN(const Frequency epoch, ParseFrequency("after_each_epoch"));
  const auto due = [](const Frequency& frequency) {
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= 10; ++step) {
      if (IsDue(frequency, step, 10, 3)) steps.push_back(step);
    }
    return steps;
  };
  EXPECT_EQ(due(end), (std::vector<int64_t>{10}));
  EXPECT_EQ(due(four), (std::vector<int64_t>{4, 8, 10}));
  EXPECT_EQ(due(epoch), (std::vector<int64_t>{3, 6, 9, 10}));
  for (const char* bad : {"", "0", "-2", "1.5", "each_epoch"}) EXPECT_FALSE(ParseFrequency(bad).ok()) << bad;
}

TEST(StepsTest, ShortLastStepCounts) {
  EXPECT_EQ(StepsPerEpoch(0, 8), 0);
  EXPECT_EQ(StepsPerEpoch(1, 8), 1);
  EXPECT_EQ(StepsPerEpoch(8, 8), 1);
  EXPECT_EQ(StepsPerEpoch(9, 8), 2);
  v1::DataSpec data;
  data.set_train_max_samples(-1);
  EXPECT_EQ(TrainRows(data, 9), 9);
  data.set_train_max_samples(4);
  EXPECT_EQ(TrainRows(data, 9), 4);
  v1::TrainerSpec trainer;
  trainer.set_total_epochs(3);
  EXPECT_EQ(TotalSteps(trainer, 2), 6);
  trainer.set_total_training_steps(5);
  EXPECT_EQ(TotalSteps(trainer, 2), 5);
}

TEST(ValidateTest, ReinforcementLearning) {
  const auto judge = [](const std::function<void(v1::JobSpec&)>& change) {
    return Judge([&](v1::JobSpec& s) {
      s.set_recipe("grpo");
      change(s);
    });
  };
  EXPECT_EQ(judge([](v1::JobSpec&) {}), "");
  EXPECT_THAT(judge([](v1::JobSpec& s) { s.mutable_data()->set_max_response_length(1 << 20); }),
              HasSubstr("data.max_token_len_per_gpu: a prompt of data.max_prompt_length 512 tokens and an answer of"));
  EXPECT_THAT(judge([](v1::JobSpec& s) {
                s.mutable_rollout()->set_n(1);
                s.mutable_algorithm()->set_adv_estimator("grpo_passk");
              }),
              HasSubstr("rollout.n: algorithm.adv_estimator grpo_passk compares"));
  EXPECT_THAT(judge([](v1::JobSpec& s) { s.mutable_rollout()->set_kv_cache_tokens(100); }),
              HasSubstr("rollout.kv_cache_tokens: 100 tokens do not hold one answer"));
  EXPECT_THAT(judge([](v1::JobSpec& s) { s.mutable_actor()->mutable_policy_loss()->set_loss_mode("dro"); }),
              HasSubstr("actor.policy_loss.dro_beta: is needed"));
  EXPECT_THAT(judge([](v1::JobSpec& s) {
                s.mutable_actor()->mutable_policy_loss()->set_loss_mode("clip_cov");
                s.mutable_actor()->mutable_policy_loss()->set_clip_cov_lb(5);
              }),
              HasSubstr("actor.policy_loss.clip_cov_lb: 5 is not below actor.policy_loss.clip_cov_ub 5"));
  EXPECT_THAT(judge([](v1::JobSpec& s) {
                s.mutable_algorithm()->set_adv_estimator("gdpo");
                s.mutable_algorithm()->set_use_kl_in_reward(true);
              }),
              HasSubstr("algorithm.use_kl_in_reward: cannot be with algorithm.adv_estimator gdpo"));
  EXPECT_THAT(judge([](v1::JobSpec& s) { s.mutable_reference()->set_path("/r"); }),
              HasSubstr("reference.path: has no effect without actor.use_kl_loss"));
  EXPECT_EQ(judge([](v1::JobSpec& s) {
              s.mutable_reference()->set_path("/r");
              s.mutable_actor()->set_use_kl_loss(true);
            }),
            "");
  EXPECT_THAT(judge([](v1::JobSpec& s) {
                s.mutable_reward()->set_kind("model");
                (*s.mutable_reward()->mutable_options()->mutable_fields())["path"].set_string_value("rm");
              }),
              HasSubstr("reward: path: rm must be an absolute path"));
  EXPECT_THAT(judge([](v1::JobSpec& s) { s.mutable_rollout()->set_top_p(0); }),
              HasSubstr("rollout.top_p: must be above 0"));
  EXPECT_THAT(judge([](v1::JobSpec& s) { s.mutable_reward()->set_kind("gsmk8"); }), HasSubstr("reward: "));
  // Keys of reinforcement learning are not judged where they do nothing.
  EXPECT_EQ(Judge([](v1::JobSpec& s) { s.mutable_rollout()->set_top_p(0); }), "");
}

TEST(ValidateTest, ACritic) {
  const auto ppo = [](const std::function<void(v1::JobSpec&)>& change, const JobFacts& facts = {}) {
    return Judge(
        [&](v1::JobSpec& s) {
          s.set_recipe("grpo");
          s.mutable_reward()->set_kind("gsm8k");
          s.mutable_algorithm()->set_adv_estimator("gae");
          change(s);
        },
        facts);
  };
  EXPECT_THAT(ppo([](v1::JobSpec& s) { s.mutable_trainer()->set_critic_warmup(3); }, {.train_rows = 24}), IsEmpty());
  EXPECT_THAT(ppo([](v1::JobSpec& s) { s.mutable_trainer()->set_critic_warmup(4); }, {.train_rows = 24}),
              HasSubstr("trainer.critic_warmup: the policy would learn from step 4 on, and the run has 3"));
  EXPECT_THAT(
      ppo([](v1::JobSpec& s) { s.mutable_critic()->mutable_optim()->set_lr_warmup_steps(9); }, {.train_rows = 24}),
      HasSubstr("critic.optim.lr_warmup_steps: "));
  EXPECT_THAT(ppo([](v1::JobSpec& s) {
                s.mutable_algorithm()->set_adv_estimator("rloo");
                s.mutable_critic()->set_path("/c");
              }),
              HasSubstr("critic.path: has no effect with algorithm.adv_estimator rloo"));
}

TEST(ValidateTest, PreferenceTuning) {
  const auto judge = [](const char* recipe, const std::function<void(v1::JobSpec&)>& change) {
    return Judge([&](v1::JobSpec& s) {
      s.set_recipe(recipe);
      s.mutable_preference()->set_loss_type(recipe);
      change(s);
    });
  };
  const auto slots = [](int64_t count) {
    return [count](v1::JobSpec& s) {
      s.mutable_data()->set_max_length(100);
      s.mutable_data()->set_max_token_len_per_gpu(count);
    };
  };
  EXPECT_EQ(judge("simpo", slots(200)), "");
  EXPECT_THAT(judge("simpo", slots(199)),
              HasSubstr("data.max_length: a pair of two answers of 100 tokens with the prompt does not fit into a "
                        "micro-batch of data.max_token_len_per_gpu 199; lower the first or raise the second to 200"));
  EXPECT_EQ(judge("kto", slots(100)), "");
  EXPECT_THAT(judge("kto", slots(99)), HasSubstr("data.max_length: an answer of 100 tokens"));
  EXPECT_THAT(judge("kto", [](v1::JobSpec& s) { s.mutable_data()->set_train_batch_size(1); }),
              HasSubstr("data.train_batch_size: kto compares"));
  EXPECT_THAT(judge("ipo", [](v1::JobSpec& s) { s.mutable_data()->set_truncation("middle"); }),
              HasSubstr("data.truncation: middle cannot cut"));
  EXPECT_THAT(judge("ipo", [](v1::JobSpec& s) { s.mutable_data()->set_format("gsm8k"); }),
              HasSubstr("data.format: gsm8k has no better and worse answers"));
  EXPECT_THAT(judge("ipo", [](v1::JobSpec& s) { s.mutable_preference()->set_beta(0); }),
              HasSubstr("preference.beta: must be above 0"));
  // Not judged where they do nothing; nor are keys of reinforcement learning here.
  EXPECT_EQ(Judge([](v1::JobSpec& s) { s.mutable_preference()->set_beta(0); }), "");
  EXPECT_EQ(judge("ipo", [](v1::JobSpec& s) { s.mutable_rollout()->set_top_p(0); }), "");
}

TEST(ValidateTest, RewardsOfAJob) {
  v1::RewardSpec spec;
  spec.set_kind("gsm8k");
  (*spec.mutable_options()->mutable_fields())["method"].set_string_value("flexible");
  ASSERT_OK_AND_ASSIGN(const auto one, RewardsFromSpec(spec));
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].options.at("method"), "flexible");

  v1::RewardSpec several;
  several.set_kind("auto");
  auto* form = (*several.mutable_terms()->mutable_fields())["form"].mutable_struct_value()->mutable_fields();
  (*form)["kind"].set_string_value("format");
  (*form)["pattern"].set_string_value(".*");
  (*form)["weight"].set_number_value(0.25);
  ASSERT_OK_AND_ASSIGN(const auto terms, RewardsFromSpec(several));
  ASSERT_EQ(terms.size(), 1u);
  EXPECT_EQ(terms[0].name, "form");
  EXPECT_EQ(terms[0].weight, 0.25);
  form->erase("pattern");
  EXPECT_THAT(RewardsFromSpec(several),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reward.terms.form: pattern")));
  several.set_kind("math");
  EXPECT_THAT(RewardsFromSpec(several), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("beside reward.terms")));

  v1::RewardSpec python;
  python.set_kind("auto");
  python.mutable_custom_reward_function()->set_path("/rewards/mine.py");
  python.mutable_custom_reward_function()->set_name("compute_score");
  python.mutable_custom_reward_function()->set_num_workers(3);
  python.mutable_custom_reward_function()->set_timeout_s(1.5);
  ASSERT_OK_AND_ASSIGN(const auto custom, RewardsFromSpec(python));
  EXPECT_EQ(custom[0].kind, "python");
  EXPECT_EQ(custom[0].options.at("timeout"), "1.5s");
  EXPECT_EQ(custom[0].options.at("workers"), "3");
}

}  // namespace
}  // namespace sluice
