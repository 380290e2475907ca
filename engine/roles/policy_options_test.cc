#include "engine/roles/policy_options.h"

#include <memory>

#include "common/config/testing/minimal_job.h"
#include "common/testing/status_matchers.h"
#include "engine/rollout/rollout_engine.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::MinimalJob;

constexpr char kTiny[] = R"({
  "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-05,
  "rope_theta": 10000, "tie_word_embeddings": true, "max_position_embeddings": 8192})";

class RolloutOptionsTest : public ::testing::Test {
 protected:
  RolloutOptionsTest() {
    auto config = ParseModelConfig(kTiny);
    EXPECT_OK(config);
    auto parameters = Parameters::CreateRandom(*config, {.gradients = false}, 1);
    EXPECT_OK(parameters);
    parameters_ = *std::move(parameters);
  }

  RolloutOptions OptionsOf(std::vector<std::string> overrides, std::optional<int64_t> free_bytes) const {
    overrides.insert(overrides.begin(), {"recipe=grpo", "data.max_prompt_length=100", "data.max_response_length=1000",
                                         "rollout.max_num_seqs=256"});
    return RolloutOptionsOf(MinimalJob(overrides), *parameters_, free_bytes);
  }

  std::unique_ptr<Parameters> parameters_;
};

constexpr int64_t kPlenty = int64_t{1} << 50;
constexpr int64_t kPagesOfOne = 69 * 16;  // 1100 tokens

TEST_F(RolloutOptionsTest, AGpuWithRoomHoldsAllAnswersAtFullLength) {
  EXPECT_EQ(OptionsOf({}, kPlenty).cache_tokens, 256 * kPagesOfOne);
}

TEST_F(RolloutOptionsTest, AGpuWithLessRoomHoldsWhatFitsInItsPart) {
  const RolloutOptions all = OptionsOf({}, kPlenty);
  const int64_t bytes = RolloutEngine::BytesFor(*parameters_, all);
  EXPECT_EQ(OptionsOf({"rollout.gpu_memory_utilization=1"}, bytes).cache_tokens, all.cache_tokens);
  for (const double part : {0.9, 0.5, 0.3}) {
    const auto free_bytes = static_cast<int64_t>(static_cast<double>(bytes) * 0.9 / part);
    const RolloutOptions less = OptionsOf({"rollout.gpu_memory_utilization=" + std::to_string(part)}, free_bytes);
    EXPECT_LT(less.cache_tokens, all.cache_tokens);
    EXPECT_EQ(less.cache_tokens % less.block_size, 0);
    const int64_t taken = RolloutEngine::BytesFor(*parameters_, less);
    EXPECT_LE(taken, bytes * 9 / 10 + 4096) << part;
    EXPECT_GT(taken, bytes * 89 / 100) << part;
  }
}

TEST_F(RolloutOptionsTest, OneAnswerAlwaysFits) {
  EXPECT_EQ(OptionsOf({}, 0).cache_tokens, kPagesOfOne);
  EXPECT_EQ(OptionsOf({"rollout.max_num_seqs=1"}, 0).cache_tokens, kPagesOfOne);
}

TEST_F(RolloutOptionsTest, ANumberOfTokensThatIsGivenHolds) {
  EXPECT_EQ(OptionsOf({"rollout.kv_cache_tokens=2000"}, kPlenty).cache_tokens, 2000);
  EXPECT_EQ(OptionsOf({"rollout.kv_cache_tokens=2000"}, std::nullopt).cache_tokens, 2000);
}

TEST_F(RolloutOptionsTest, OnTheCpuTheCacheIsBounded) {
  EXPECT_EQ(OptionsOf({}, std::nullopt).cache_tokens, 131'072);
  EXPECT_EQ(OptionsOf({"rollout.max_num_seqs=8"}, std::nullopt).cache_tokens, 8 * 1100);
}

}  // namespace
}  // namespace sluice::engine
