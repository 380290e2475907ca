#include "common/config/plan.h"

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "common/config/job_reader.h"
#include "common/config/readable.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelFacts Model() {
  ModelFacts model;
  model.architecture = "LlamaForCausalLM";
  model.layers = 2;
  model.hidden_size = 8;
  model.intermediate_size = 16;
  model.attention_heads = 2;
  model.key_value_heads = 1;
  model.head_dim = 4;
  model.vocab_size = 10;
  model.parameters = 1000;
  return model;
}

v1::JobSpec Spec(std::vector<std::string> overrides = {}) {
  LoadOptions options;
  options.file = "job.yaml";
  options.text =
      "model: {path: m}\ndata: {train_files: t, train_batch_size: 16, max_length: 100, max_token_len_per_gpu: 256}\n"
      "optim: {lr: 1.0, init_lr_ratio: 0, min_lr_ratio: 0, lr_scheduler_type: linear, lr_warmup_steps: 2}\n"
      "trainer: {n_gpus_per_node: 2, total_epochs: 2}\nengine: {device: cpu}\n";
  options.overrides = std::move(overrides);
  options.env = [](const std::string&) { return std::nullopt; };
  options.working_folder = "/folder";
  auto spec = LoadJobSpec(options);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : v1::JobSpec();
}

TEST(PlanTest, NumbersOfAKnownDataSet) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(Spec(), Model(), {.train_rows = 60, .train_tokens = 3000}));
  EXPECT_EQ(plan.ranks, 2);
  EXPECT_EQ(plan.rows_per_rank, 8);
  EXPECT_EQ(*plan.steps_per_epoch, 4);  // 16 + 16 + 16 + 12
  EXPECT_EQ(*plan.total_steps, 8);
  EXPECT_DOUBLE_EQ(*plan.tokens_per_step, 800);  // 50 tokens a row
  EXPECT_EQ(*plan.expected_micro_batches, 2);    // 400 tokens a rank in 256 slots
  EXPECT_EQ(plan.most_micro_batches, 4);         // two rows of 100 fit into 256
  EXPECT_THAT(plan.notes, Contains(HasSubstr("the last step of each epoch has 12 rows")));
}

TEST(PlanTest, PackedMicroBatchesWinOverTheEstimate) {
  ASSERT_OK_AND_ASSIGN(
      const Plan plan,
      MakePlan(Spec(), Model(), {.train_rows = 64, .train_tokens = 3000, .micro_batches_per_epoch = 20}));
  EXPECT_DOUBLE_EQ(*plan.expected_micro_batches, 2.5);
}

TEST(PlanTest, CurvePointsAreTheRatesApplied) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(Spec(), Model(), {.train_rows = 64}));
  std::vector<std::tuple<int64_t, std::string, double>> points;
  for (const auto& point : plan.curve) points.emplace_back(point.step, point.label, point.learning_rate);
  using Point = std::tuple<int64_t, std::string, double>;
  EXPECT_THAT(points, ::testing::ElementsAre(Point{1, "first", 0.0}, Point{2, "1/4", 0.5},
                                             Point{3, "end of warm-up", 1.0}, Point{4, "1/2", 1 - 1.0 / 6},
                                             Point{6, "3/4", 0.5}, Point{8, "last", 1 - 5.0 / 6}));
}

TEST(PlanTest, UnknownDataLeavesNumbersOut) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(Spec(), Model(), {}));
  EXPECT_FALSE(plan.total_steps.has_value());
  EXPECT_THAT(plan.curve, IsEmpty());
  EXPECT_THAT(FormatPlan(plan), HasSubstr("unknown until the rows are counted"));
  EXPECT_TRUE(nlohmann::json::parse(PlanJson(plan))["total_steps"].is_null());
  ASSERT_OK_AND_ASSIGN(const Plan limited, MakePlan(Spec({"trainer.total_training_steps=5"}), Model(), {}));
  EXPECT_EQ(*limited.total_steps, 5);
}

TEST(PlanTest, MemoryByPart) {
  const auto parts = [](const std::vector<std::string>& overrides) {
    const auto plan = MakePlan(Spec(overrides), Model(), {});
    std::map<std::string, int64_t> bytes;
    for (const auto& part : plan->memory) bytes[part.part] = part.bytes;
    return bytes;
  };
  // Query 8, key and value 4 each: 16 + 16 + 8 + 32 values and 4 statistics a layer; 32 + 16 shared and 16 + 16 + 8 +
  // 16 for the backward.
  const auto fp32 = parts({});
  EXPECT_EQ(fp32.at("weights"), 4000);
  EXPECT_EQ(fp32.at("gradients"), 4000);
  EXPECT_EQ(fp32.at("moments"), 8000);
  EXPECT_EQ(fp32.count("master weights"), 0u);
  EXPECT_EQ(fp32.at("activations"), 256 * (2 * (72 * 4 + 4 * 4) + (48 + 56) * 4));
  const auto bf16 = parts({"engine.model_dtype=bf16"});
  EXPECT_EQ(bf16.at("weights"), 2000);
  EXPECT_EQ(bf16.at("master weights"), 4000);
  EXPECT_EQ(bf16.at("activations"), 256 * (2 * (72 * 2 + 4 * 4) + (48 + 56) * 2));
  const auto forward = parts({"engine.forward_only=true", "data.val_files=v"});
  EXPECT_EQ(forward.count("gradients"), 0u);
  EXPECT_EQ(forward.at("activations"), 256 * ((72 * 4 + 4 * 4) + 48 * 4));
}

TEST(PlanTest, NotesSayWhatDoesNothing) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(Spec({"optim.lr_warmup_steps_ratio=0.1", "optim.lr_wsd_decay_steps=3",
                                                       "trainer.test_freq=5", "trainer.total_training_steps=9",
                                                       "engine.device=auto", "engine.dtype=bf16"}),
                                                 Model(), {}));
  EXPECT_THAT(plan.notes,
              AllOf(Contains(HasSubstr("lr_warmup_steps_ratio does nothing")),
                    Contains(HasSubstr("lr_wsd_decay_steps does nothing")),
                    Contains(HasSubstr("test_freq does nothing")), Contains(HasSubstr("total_epochs does nothing")),
                    Contains(HasSubstr("engine.device auto")), Contains(HasSubstr("model_dtype bf16"))));
}

TEST(PlanTest, WarmupLongerThanTheRunIsAnError) {
  EXPECT_THAT(MakePlan(Spec(), Model(), {.train_rows = 10}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("warm-up takes 2 steps")));
}

TEST(PlanTest, TextAndJsonShowTheSameNumbers) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(Spec(), Model(), {.train_rows = 64, .train_tokens = 3200}));
  const std::string text = FormatPlan(plan);
  EXPECT_THAT(text, AllOf(HasSubstr("ranks                       2 (1 node(s) x 2)"),
                          HasSubstr("tokens per step             800"),
                          HasSubstr("micro-batches per step      2 expected, at most 4 (per rank)"),
                          HasSubstr("  3         end of warm-up    1 ")));
  const auto json = nlohmann::json::parse(PlanJson(plan));
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["total_steps"], 8);
  EXPECT_EQ(json["memory_bytes_per_rank"]["weights"], 4000);
  EXPECT_EQ(json["schedule"].size(), plan.curve.size());
}

TEST(ReadableTest, Numbers) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(134515008), "134,515,008");
  EXPECT_EQ(FormatCount(-1000), "-1,000");
  EXPECT_EQ(FormatBytes(1023), "1023 bytes");
  EXPECT_EQ(FormatBytes(538060032), "513.1 MiB");
  EXPECT_EQ(FormatRate(2.5e-5), "2.5e-05");
  EXPECT_EQ(FormatOneDecimal(12), "12");
  EXPECT_EQ(FormatOneDecimal(2.5), "2.5");
}

}  // namespace
}  // namespace sluice
