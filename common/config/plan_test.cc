#include "common/config/plan.h"

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
using ::testing::Not;

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

TEST(PlanTest, SaysWhichModelsAreTrainedWithTheirHeads) {
  const auto plan_of = [](std::vector<std::string> overrides) {
    const auto plan = MakePlan(Spec(std::move(overrides)), Model(), {});
    EXPECT_OK(plan.status());
    return plan.ok() ? *plan : Plan();
  };
  const Plan sft = plan_of({});
  EXPECT_THAT(FormatPlan(sft), HasSubstr("LlamaForCausalLM, 1,000 parameters\n"));
  EXPECT_THAT(FormatPlan(sft), Not(HasSubstr("critic")));
  const nlohmann::json sft_json = nlohmann::json::parse(PlanJson(sft));
  EXPECT_EQ(sft_json["score_head_parameters"], 0);
  EXPECT_TRUE(sft_json["critic"].is_null());

  // The embedding of 10 tokens, a row of 8 for the head, two layers and the last norm.
  const int64_t with_head = WithValueHead(Model()).parameters;
  EXPECT_EQ(with_head, 10 * 8 + 8 + 2 * (8 * (8 + 2 * 4) + 8 * 8 + 3 * 8 * 16 + 2 * 8) + 8);
  const std::string says =
      absl::StrCat("LlamaForSequenceClassification, ", FormatCount(with_head), " parameters, 8 of them the head: one");
  const Plan reward_model = plan_of({"recipe=reward_model"});
  EXPECT_THAT(FormatPlan(reward_model), HasSubstr(absl::StrCat("  model                       ", says)));
  EXPECT_EQ(nlohmann::json::parse(PlanJson(reward_model))["architecture"], "LlamaForSequenceClassification");
  EXPECT_EQ(nlohmann::json::parse(PlanJson(reward_model))["parameters"], with_head);

  const std::vector<std::string> lengths = {"data.max_prompt_length=50", "data.max_response_length=50"};
  const Plan ppo = plan_of({"recipe=ppo", lengths[0], lengths[1]});
  EXPECT_THAT(FormatPlan(ppo), HasSubstr("  model                       LlamaForCausalLM, 1,000 parameters\n"));
  EXPECT_THAT(FormatPlan(ppo), HasSubstr(absl::StrCat("  critic                      ", says)));
  EXPECT_EQ(nlohmann::json::parse(PlanJson(ppo))["critic"]["parameters"], with_head);
  EXPECT_FALSE(plan_of({"recipe=grpo", lengths[0], lengths[1]}).critic.has_value());
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

TEST(PlanTest, SaysWhenItValidatesAndSaves) {
  const auto says = [](const std::vector<std::string>& overrides) {
    const auto plan = MakePlan(Spec(overrides), Model(), {.train_rows = 64});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return FormatPlan(*plan);
  };
  const std::string never = says({"data.val_files=[]", "trainer.save_freq=1"});
  EXPECT_THAT(never, HasSubstr("  validation                  never: data.val_files is empty\n"));
  EXPECT_THAT(never, HasSubstr("  checkpoints                 after every step\n"));
  const std::string both =
      says({"data.val_files=[/v.jsonl]", "trainer.test_freq=10", "trainer.save_freq=after_each_epoch"});
  EXPECT_THAT(both, HasSubstr("  validation                  before the first step, every 10 steps and at the end\n"));
  EXPECT_THAT(both, HasSubstr("  checkpoints                 after each epoch and at the end\n"));
  const std::string end = says({"data.val_files=[/v.jsonl]", "trainer.val_before_train=false"});
  EXPECT_THAT(end, HasSubstr("  validation                  at the end\n"));
  EXPECT_THAT(end, HasSubstr("  checkpoints                 at the end\n"));
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

std::map<std::string, int64_t> MemoryParts(const std::vector<std::string>& overrides, const ModelFacts& model,
                                           const DataFacts& data = {}) {
  const auto plan = MakePlan(Spec(overrides), model, data);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::map<std::string, int64_t> bytes;
  for (const auto& part : plan->memory) bytes[part.part] = part.bytes;
  return bytes;
}

TEST(PlanTest, MemoryOfParametersAndOptimizer) {
  const auto fp32 = MemoryParts({}, Model());
  EXPECT_EQ(fp32.at("weights"), 4000);
  EXPECT_EQ(fp32.at("gradients"), 4000);
  EXPECT_EQ(fp32.at("moments"), 8000);
  EXPECT_EQ(fp32.count("master weights"), 0u);
  const auto bf16 = MemoryParts({"engine.model_dtype=bf16"}, Model());
  EXPECT_EQ(bf16.at("weights"), 2000);
  EXPECT_EQ(bf16.at("master weights"), 2000);
  EXPECT_EQ(bf16.at("gradients"), 4000);
  const auto least =
      MemoryParts({"engine.model_dtype=bf16", "optim.master_weights=false", "optim.moments_dtype=bf16"}, Model());
  EXPECT_EQ(least.count("master weights"), 0u);
  EXPECT_EQ(least.at("moments"), 4000);
  const auto forward = MemoryParts({"engine.forward_only=true", "data.val_files=v"}, Model());
  EXPECT_EQ(forward.count("gradients"), 0u);
  EXPECT_EQ(forward.count("moments"), 0u);
}

// Query 8, key and value 4 each. A layer: residuals 16, norms' outputs 16, qkv 16, q, k and v 16, attention 8,
// gate_up 32, swiglu 16; 4 statistics. The backward: 16 + 16 + 16 + 8. The rest of the model: 24 and 7 + 9 of 4 bytes.
TEST(PlanTest, MemoryOfActivations) {
  const auto activations = [](const std::string& mode, std::vector<std::string> overrides = {}) {
    overrides.push_back("engine.activation_checkpointing=" + mode);
    return MemoryParts(overrides, Model()).at("activations");
  };
  constexpr int64_t kRest = 24 * 4 + 16 * 4, kBackward = 56 * 4;
  EXPECT_EQ(activations("none"), 256 * (2 * (104 * 4 + 4 * 4) + 16 * 4 + kBackward + kRest));
  EXPECT_EQ(activations("selective"), 256 * (2 * (72 * 4 + 4 * 4) + 48 * 4 + kBackward + kRest));
  EXPECT_EQ(activations("full"), 256 * (2 * 8 * 4 + (112 * 4 + 4 * 4) + kBackward + kRest));
  EXPECT_EQ(activations("selective", {"engine.model_dtype=bf16"}),
            256 * (2 * (72 * 2 + 4 * 4) + 48 * 2 + 56 * 2 + 24 * 2 + 16 * 4));
  EXPECT_EQ(activations("selective", {"engine.forward_only=true", "data.val_files=v"}),
            256 * (120 * 4 + 4 * 4 + kRest));
  // qkv is kept for the backward of the queries' and keys' norms, and they have statistics: 3 more.
  ModelFacts qk_norm = Model();
  qk_norm.qk_norm = true;
  EXPECT_EQ(MemoryParts({}, qk_norm).at("activations"), 256 * (2 * (88 * 4 + 7 * 4) + 32 * 4 + kBackward + kRest));
}

TEST(PlanTest, MemoryOfTheWorkspace) {
  ModelFacts model = Model();
  model.head_dim = 8;
  const auto workspace = [&](const std::vector<std::string>& overrides, const DataFacts& data = {}) {
    return MemoryParts(overrides, model, data).at("workspace");
  };
  // On the CPU 256 rows of 10 logits are less than dk and dv by query head.
  EXPECT_EQ(workspace({}), 2 * 256 * 16 * 4);
  // On CUDA 256 rows of logits (10 rounded up to 16), of hidden and of its gradient.
  constexpr int64_t kProducts = 32 << 20;
  EXPECT_EQ(workspace({"engine.device=cuda", "engine.model_dtype=bf16"}), kProducts + 256 * (16 + 16) * 2);
  EXPECT_EQ(workspace({"engine.device=auto", "engine.model_dtype=bf16"}), kProducts + 256 * (16 + 16) * 2);
  // Sequence by sequence in fp32: 100 tokens.
  EXPECT_EQ(workspace({"engine.device=cuda"}), kProducts + 256 * (16 + 16) * 4 + 16 * 2 * 100 * 100 + 20 * 2 * 100 * 8);
  // Many slots: attention's dq, dk and dv are more than the logits.
  EXPECT_EQ(workspace({"engine.device=cuda", "engine.model_dtype=bf16", "data.max_token_len_per_gpu=1048576"}),
            1048576 * 12 * 16);
  EXPECT_EQ(workspace({"engine.device=cuda", "engine.model_dtype=bf16", "data.max_token_len_per_gpu=1048576",
                       "engine.forward_only=true", "data.val_files=v"}),
            kProducts + 1048576 * (16 + 16) * 2);
  // 3000 tokens need room for 4096, two of them for two; with short rows beside them for more.
  const std::vector<std::string> deterministic = {"engine.device=cuda", "engine.model_dtype=bf16",
                                                  "engine.full_determinism=true", "data.max_length=3000",
                                                  "data.max_token_len_per_gpu=8192"};
  EXPECT_EQ(workspace(deterministic), int64_t{2} * 2 * 2 * 4096 * 4096);
  // 16 rows a step, 64 in 4 steps and 10 micro-batches: 6.4 in each.
  EXPECT_EQ(workspace(deterministic, {.train_rows = 64, .train_tokens = 64000, .micro_batches_per_epoch = 10}),
            int64_t{2} * 8 * 2 * 4096 * 4096);
}

TEST(PlanTest, MemoryOfKeysAndValues) {
  const auto cache = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"recipe=grpo", "data.max_prompt_length=100", "data.max_response_length=100",
                                         "rollout.max_num_seqs=2000"});
    return MemoryParts(overrides, Model()).at("key/value cache");
  };
  constexpr int64_t kToken = 2 * 2 * 4 * 4;  // keys and values of 2 layers and 4 elements
  EXPECT_EQ(cache({}), 131'072 * kToken);
  EXPECT_EQ(cache({"rollout.max_num_seqs=4"}), 4 * 200 * kToken);
  EXPECT_EQ(cache({"engine.device=cuda"}), 2000 * 200 * kToken);
  EXPECT_EQ(cache({"engine.device=cuda", "rollout.kv_cache_tokens=4096"}), 4096 * kToken);
}

TEST(PlanTest, MemoryNamesItsDevice) {
  for (const auto& [device, shown] :
       {std::pair("cpu", "memory per rank on cpu"), {"cuda", "memory per rank on cuda"}, {"auto", "on cuda"}}) {
    ASSERT_OK_AND_ASSIGN(const Plan plan,
                         MakePlan(Spec({std::string("engine.device=") + device}), Model(), {.train_rows = 64}));
    EXPECT_THAT(FormatPlan(plan), HasSubstr(shown));
    EXPECT_EQ(nlohmann::json::parse(PlanJson(plan))["memory_device"], plan.memory_device);
  }
}

// What is said and what is not said of the engine's keys.
struct NoteCase {
  std::vector<std::string> overrides;
  std::vector<const char*> said, not_said;
};

TEST(PlanTest, NotesOnTheEngine) {
  const NoteCase kCases[] = {
      {{},
       {"engine.gemm_autotune and engine.cuda_graphs do nothing on the CPU", "activation_checkpointing selective"},
       {"full_determinism", "master_weights", "moments_dtype", "engine.device auto"}},
      {{"engine.full_determinism=true"}, {"full_determinism does nothing on the CPU"}, {"2 * B"}},
      {{"engine.activation_checkpointing=full"}, {"activation_checkpointing full: each layer keeps its entry"}, {}},
      {{"engine.activation_checkpointing=none"}, {"activation_checkpointing none: all activations"}, {}},
      {{"engine.forward_only=true", "data.val_files=v"}, {"activation_checkpointing does nothing"}, {"selective"}},
      {{"optim.master_weights=false", "optim.moments_dtype=bf16"},
       {"optim.master_weights does nothing: fp32", "optim.moments_dtype bf16"},
       {}},
      {{"engine.model_dtype=bf16"}, {"optim.master_weights: 16 more bits"}, {"moments_dtype"}},
      {{"engine.model_dtype=bf16", "optim.master_weights=false"}, {"rounded stochastically"}, {"does nothing: fp32"}},
      {{"engine.device=cuda"},
       {"engine.gemm_autotune: the first steps", "engine.cuda_graphs does nothing: attention in fp32",
        "bf16 is many times faster"},
       {"on the CPU"}},
      {{"engine.device=cuda", "engine.gemm_autotune=false", "engine.cuda_graphs=false"},
       {},
       {"gemm_autotune", "cuda_graphs"}},
      {{"engine.device=cuda", "engine.model_dtype=bf16"}, {"engine.cuda_graphs: forward and backward"}, {"2 * B", "times faster"}},
      {{"engine.device=auto", "engine.model_dtype=bf16", "engine.full_determinism=true"},
       {"the memory is that on cuda", "2 * B * 2 * S^2 bytes", "engine.gemm_autotune does nothing"},
       {"the first steps"}},
      {{"engine.device=cuda", "engine.full_determinism=true"}, {"reruns on CUDA give the same bits"}, {"2 * B"}},
  };
  ModelFacts model = Model();
  model.head_dim = 8;
  for (const NoteCase& c : kCases) {
    ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(Spec(c.overrides), model, {}));
    const std::string notes = absl::StrJoin(plan.notes, "\n");
    for (const char* said : c.said) EXPECT_THAT(notes, HasSubstr(said));
    for (const char* not_said : c.not_said) EXPECT_THAT(notes, ::testing::Not(HasSubstr(not_said)));
  }
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
