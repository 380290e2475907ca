#include "engine/roles/memory_check.h"

#include <string>
#include <vector>

#include "common/config/testing/minimal_job.h"
#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::MinimalJob;
using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(CheckMemoryTest, NamesPartsAndSettings) {
  const MemoryNeeds needs = {.weights = 14 * kGiB,
                             .gradients = 28 * kGiB,
                             .optimizer = 70 * kGiB,
                             .activations = 30 * kGiB,
                             .workspace = kGiB};
  const v1::JobSpec spec = MinimalJob({"engine.model_dtype=bf16"});
  EXPECT_OK(CheckMemory(needs, 143 * kGiB, spec));
  EXPECT_THAT(CheckMemory(needs, 143 * kGiB - 1, spec),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "the job needs 143.0 GiB of GPU memory and 143.0 GiB are free: weights 14.0 GiB, gradients 28.0 "
                       "GiB, optimizer 70.0 GiB, activations 30.0 GiB, workspace 1.0 GiB; to need less, lower "
                       "data.max_token_len_per_gpu (now 8192), or set engine.activation_checkpointing to full, or set "
                       "optim.moments_dtype to bf16, or set optim.master_weights to false"));
}

struct RemedyCase {
  std::vector<std::string> overrides;
  std::vector<const char*> offered, not_offered;
};

TEST(CheckMemoryTest, OffersWhatIsNotDoneYet) {
  const RemedyCase kCases[] = {
      {{"data.max_token_len_per_gpu=2048"},
       {"data.max_token_len_per_gpu (now 2048)", "engine.model_dtype to bf16", "optim.moments_dtype"},
       {"optim.master_weights", "full_determinism"}},
      {{"engine.activation_checkpointing=none"}, {"engine.activation_checkpointing to selective or full"}, {}},
      {{"engine.activation_checkpointing=full"}, {"data.max_token_len_per_gpu"}, {"activation_checkpointing"}},
      {{"engine.model_dtype=bf16", "optim.moments_dtype=bf16", "optim.master_weights=false"},
       {"data.max_token_len_per_gpu"},
       {"model_dtype", "moments_dtype", "master_weights"}},
      {{"engine.full_determinism=true"}, {"engine.full_determinism to false"}, {}},
      {{"engine.forward_only=true"},
       {"data.max_token_len_per_gpu", "engine.model_dtype"},
       {"optim.", "activation_checkpointing", "gradients", "optimizer"}},
  };
  for (const RemedyCase& c : kCases) {
    const absl::Status status = CheckMemory({.weights = 2, .activations = 3}, 4, MinimalJob(c.overrides));
    const std::string message(status.message());
    for (const char* offered : c.offered) EXPECT_THAT(message, HasSubstr(offered));
    for (const char* not_offered : c.not_offered) EXPECT_THAT(message, Not(HasSubstr(not_offered)));
  }
}

ModelConfig Config() {
  auto config = ParseModelConfig(
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1024, "hidden_size": 256,
          "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 64, "tie_word_embeddings": true, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
          "hidden_act": "silu"})");
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

TEST(NeedsOnCudaTest, HasThePartsThatTheJobAllocates) {
  const ModelConfig config = Config();
  const v1::JobSpec spec = MinimalJob({"engine.model_dtype=bf16"});
  const MemoryNeeds training = NeedsOnCuda(spec, config, /*optimizer=*/true, {});
  EXPECT_EQ(training.gradients, 2 * training.weights);
  // Two moments in fp32 and 16 bits of master weights, and the few numbers of a step.
  EXPECT_NEAR(static_cast<double>(training.optimizer), 5.0 * training.weights, 1024);
  EXPECT_GT(training.activations, 0);
  EXPECT_EQ(NeedsOnCuda(spec, config, /*optimizer=*/false, {}).optimizer, 0);
  const MemoryNeeds forward =
      NeedsOnCuda(MinimalJob({"engine.model_dtype=bf16", "engine.forward_only=true"}), config, /*optimizer=*/true, {});
  EXPECT_EQ(forward.gradients, 0);
  EXPECT_EQ(forward.optimizer, 0);
  EXPECT_LT(forward.activations, training.activations);
}

TEST(NeedsOnCudaTest, WorkspaceFollowsTheRows) {
  const ModelConfig config = Config();
  const auto workspace = [&](const std::vector<std::string>& overrides, const RowLengths& rows) {
    return NeedsOnCuda(MinimalJob(overrides), config, /*optimizer=*/true, rows).workspace;
  };
  const std::vector<std::string> fast = {"engine.model_dtype=bf16", "data.max_length=8192"};
  EXPECT_EQ(workspace(fast, {}), workspace(fast, {.longest = 100, .mean = 50}));
  const std::vector<std::string> deterministic = {"engine.model_dtype=bf16", "data.max_length=8192",
                                                  "engine.full_determinism=true"};
  // One row of 8192; rows of at most 2000 in places of 2048, 8192 / 700 of them in places for 16.
  EXPECT_EQ(workspace(deterministic, {}), int64_t{2} * 1 * 4 * 8192 * 8192);
  EXPECT_EQ(workspace(deterministic, {.longest = 2000, .mean = 700}), int64_t{2} * 16 * 4 * 2048 * 2048);
  // LibTorch holds the scores of the longest row.
  EXPECT_GT(workspace({"data.max_length=8192"}, {}), workspace({"data.max_length=8192"}, {.longest = 100}));
}

}  // namespace
}  // namespace sluice::engine
