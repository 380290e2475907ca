// Recipe knowledge_distillation through the real programs, in miniature.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/tiny_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

class DistillationTest : public ::testing::Test {
 protected:
  // The teacher is the tiny model after fine-tuning; the student begins with other random weights.
  static void SetUpTestSuite() {
    job_ = new TinyJob();
    const CommandResult result = job_->Run("teacher", {"trainer.total_epochs=6", "trainer.save_freq=-1"});
    ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  }
  static void TearDownTestSuite() {
    delete job_;
    job_ = nullptr;
  }

  static CommandResult Run(const std::string& run, std::vector<std::string> overrides,
                           const Environment& environment = {}) {
    overrides.insert(overrides.begin(), {"recipe=knowledge_distillation", "trainer.seed=8",
                                         "reference.path=" + job_->Path("teacher/huggingface")});
    return job_->Run(run, overrides, environment);
  }
  static std::vector<std::map<std::string, double>> Steps(const std::string& run) {
    return MetricLines(job_->Contents(run + "/metrics.jsonl"), "train/loss");
  }
  static std::vector<std::map<std::string, double>> Validations(const std::string& run) {
    return MetricLines(job_->Contents(run + "/metrics.jsonl"), "val/loss");
  }

  static TinyJob* job_;
};

TinyJob* DistillationTest::job_ = nullptr;

TEST_F(DistillationTest, TheStudentComesNearToItsTeacher) {
  const std::vector<std::tuple<std::string, std::string, double>> cases = {
      {"forward", "{loss: forward_kl}", 1},
      {"reverse", "{loss: reverse_kl}", 1},
      {"forward-listed", "{loss: forward_kl, top_k: 8}", 1},
      {"mixed", "{loss: reverse_kl, top_k: 8, temperature: 2, kd_ratio: 0.5}", 0.5}};
  for (const auto& [run, distillation, ratio] : cases) {
    const CommandResult result =
        Run(run, {"distillation=" + distillation, "trainer.total_epochs=6", "trainer.save_freq=-1"});
    ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
    const auto steps = Steps(run);
    ASSERT_EQ(steps.size(), 24u);
    EXPECT_GT(steps.front().at("distillation/divergence"), 0.5) << run;
    EXPECT_LT(steps.back().at("distillation/divergence"), 0.4 * steps.front().at("distillation/divergence")) << run;
    for (const auto& step : steps) {
      EXPECT_NEAR(step.at("train/loss"),
                  ratio * step.at("distillation/divergence") + (1 - ratio) * step.at("distillation/nll"), 1e-5);
    }
    const auto validations = Validations(run);
    ASSERT_EQ(validations.size(), 2u);
    EXPECT_LT(validations.back().at("val/distillation/divergence"),
              0.5 * validations.front().at("val/distillation/divergence"))
        << run;
  }
}

TEST_F(DistillationTest, RanksAndDeathsChangeNothing) {
  const CommandResult calm = Run("calm", {});
  ASSERT_EQ(calm.exit_code, 0) << calm.output << calm.errors;
  const CommandResult two = Run("two", {"trainer.n_gpus_per_node=2", "data.train_batch_size=10"});
  const CommandResult one = Run("one", {"data.train_batch_size=10"});
  ASSERT_EQ(one.exit_code, 0) << one.output << one.errors;
  ASSERT_EQ(two.exit_code, 0) << two.output << two.errors;
  for (size_t i = 0; i < Steps("one").size(); ++i) {
    EXPECT_NEAR(Steps("two")[i].at("train/loss"), Steps("one")[i].at("train/loss"), 1e-5);
    EXPECT_NEAR(Steps("two")[i].at("distillation/nll"), Steps("one")[i].at("distillation/nll"), 1e-5);
    EXPECT_NEAR(Steps("two")[i].at("train/grad_norm"), Steps("one")[i].at("train/grad_norm"), 1e-4);
  }
  const CommandResult killed = Run("killed", {}, {{"SLUICE_FAILPOINTS", "engine.micro_batch=13"}});
  ASSERT_EQ(killed.exit_code, 0) << killed.output << killed.errors;
  EXPECT_THAT(killed.output + killed.errors, HasSubstr("was lost"));
  EXPECT_EQ(job_->Contents("killed/huggingface/model.safetensors"),
            job_->Contents("calm/huggingface/model.safetensors"));
}

TEST_F(DistillationTest, ATeacherOfItselfTeachesNothing) {
  // The student is the teacher's folder.
  const CommandResult result =
      Run("same", {"model={path: " + job_->Path("teacher/huggingface") + "}", "trainer.total_training_steps=1",
                   "optim.lr_warmup_steps=0", "trainer.export_hf_model=false"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_NEAR(Steps("same")[0].at("train/loss"), 0, 1e-6);
  EXPECT_NEAR(Steps("same")[0].at("train/grad_norm"), 0, 1e-4);
}

TEST_F(DistillationTest, BadInputIsNamed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"reference.path="}, "reference.path: is needed by recipe knowledge_distillation"},
      {{"distillation.kd_ratio=0"}, "distillation.kd_ratio: "},
      {{"distillation.temperature=0"}, "distillation.temperature: "},
      {{"distillation.top_k=100000"}, "distillation.top_k: 100000 of the 704 tokens"},
      {{"distillation.loss=kl"}, "distillation.loss: expected one of"}};
  for (const auto& [overrides, message] : cases) {
    const CommandResult result = Run("bad", overrides);
    EXPECT_EQ(result.exit_code, 2) << overrides[0] << result.output << result.errors;
    EXPECT_THAT(result.output + result.errors, HasSubstr(message));
  }
}

TEST_F(DistillationTest, ThePlanCountsTheTeacher) {
  std::vector<std::string> arguments =
      job_->Arguments("plan", {"recipe=knowledge_distillation", "reference.path=" + job_->Path("teacher/huggingface")});
  arguments.insert(arguments.begin(), "plan");
  const CommandResult result = RunSluice(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_THAT(result.output, HasSubstr("reference model"));
  EXPECT_THAT(result.output, HasSubstr("logits of both models"));
}

}  // namespace
}  // namespace sluice::testing
