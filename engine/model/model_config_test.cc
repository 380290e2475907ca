#include "engine/model/model_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/model/flops.h"
#include "engine/model/rotary.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

nlohmann::json Llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 100},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-5}};
}

nlohmann::json With(nlohmann::json config, const nlohmann::json& changes) {
  config.update(changes);
  return config;
}

TEST(ModelConfigTest, ReadsSizesAndDefaults) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(Llama().dump()));
  EXPECT_EQ(config.vocab_size, 100);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.qkv_size(), 64);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_THAT(config.windows, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(config.storage_dtype, kernels::DType::kFloat32);
}

TEST(ModelConfigTest, ArchitecturesDifferInBiasNormAndWindow) {
  const auto parse = [](const nlohmann::json& changes) { return ParseModelConfig(With(Llama(), changes).dump()); };
  ASSERT_OK_AND_ASSIGN(const ModelConfig llama, parse({{"attention_bias", true}, {"mlp_bias", true}}));
  EXPECT_TRUE(llama.qkv_bias && llama.attention_output_bias && llama.mlp_bias);
  ASSERT_OK_AND_ASSIGN(const ModelConfig mistral,
                       parse({{"architectures", {"MistralForCausalLM"}}, {"sliding_window", 7}}));
  EXPECT_FALSE(mistral.qkv_bias);
  EXPECT_THAT(mistral.windows, ElementsAre(7, 7, 7, 7));
  ASSERT_OK_AND_ASSIGN(const ModelConfig open,
                       parse({{"architectures", {"MistralForCausalLM"}}, {"sliding_window", nullptr}}));
  EXPECT_THAT(open.windows, ElementsAre(0, 0, 0, 0));
  ASSERT_OK_AND_ASSIGN(const ModelConfig qwen2,
                       parse({{"architectures", {"Qwen2ForCausalLM"}}, {"sliding_window", 7}}));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.attention_output_bias);
  EXPECT_THAT(qwen2.windows, ElementsAre(0, 0, 0, 0));
  ASSERT_OK_AND_ASSIGN(const ModelConfig qwen3, parse({{"architectures", {"Qwen3ForCausalLM"}}}));
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.head_dim, 128);
}

TEST(ModelConfigTest, QwenWindowsFollowMaxWindowLayersOrLayerTypes) {
  const nlohmann::json qwen = With(Llama(), {{"architectures", {"Qwen2ForCausalLM"}},
                                             {"use_sliding_window", true},
                                             {"sliding_window", 7},
                                             {"max_window_layers", 3}});
  ASSERT_OK_AND_ASSIGN(const ModelConfig by_count, ParseModelConfig(qwen.dump()));
  EXPECT_THAT(by_count.windows, ElementsAre(0, 0, 0, 7));
  const nlohmann::json types = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  ASSERT_OK_AND_ASSIGN(const ModelConfig by_type, ParseModelConfig(With(qwen, {{"layer_types", types}}).dump()));
  EXPECT_THAT(by_type.windows, ElementsAre(7, 0, 7, 0));
}

TEST(ModelConfigTest, BothRopeSpellingsMeanTheSame) {
  const nlohmann::json scaling = {{"rope_type", "llama3"},
                                  {"factor", 8.0},
                                  {"low_freq_factor", 1.0},
                                  {"high_freq_factor", 4.0},
                                  {"original_max_position_embeddings", 8192}};
  ASSERT_OK_AND_ASSIGN(const ModelConfig old_spelling,
                       ParseModelConfig(With(Llama(), {{"rope_theta", 500000.0}, {"rope_scaling", scaling}}).dump()));
  ASSERT_OK_AND_ASSIGN(
      const ModelConfig new_spelling,
      ParseModelConfig(With(Llama(), {{"rope_parameters", With(scaling, {{"rope_theta", 500000.0}})}}).dump()));
  EXPECT_EQ(old_spelling.rope.theta, 500000.0);
  EXPECT_EQ(old_spelling.rope.scaling, RopeConfig::Scaling::kLlama3);
  EXPECT_EQ(RotaryInverseFrequencies(old_spelling.rope, 64), RotaryInverseFrequencies(new_spelling.rope, 64));
  ASSERT_OK_AND_ASSIGN(
      const ModelConfig linear,
      ParseModelConfig(With(Llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}).dump()));
  EXPECT_EQ(linear.rope.scaling, RopeConfig::Scaling::kLinear);
  EXPECT_EQ(RotaryInverseFrequencies(linear.rope, 8)[0], 0.5f);
}

TEST(ModelConfigTest, OverridesReachEitherSpelling) {
  const std::string file =
      With(Llama(), {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}}).dump();
  ASSERT_OK_AND_ASSIGN(const ModelConfig theta, ParseModelConfig(file, R"({"rope_theta": 1000000.0})"));
  EXPECT_EQ(theta.rope.theta, 1000000.0);
  ASSERT_OK_AND_ASSIGN(const ModelConfig scaled,
                       ParseModelConfig(file, R"({"rope_scaling": {"type": "linear", "factor": 4.0}})"));
  EXPECT_EQ(scaled.rope.factor, 4.0);
  EXPECT_EQ(scaled.rope.theta, 10000.0);
  ASSERT_OK_AND_ASSIGN(const ModelConfig layers, ParseModelConfig(file, R"({"num_hidden_layers": 2.0})"));
  EXPECT_EQ(layers.layers, 2);
  EXPECT_THAT(ParseModelConfig(file, R"({"num_hidden_layer": 2})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("override_config.num_hidden_layer")));
}

TEST(ModelConfigTest, ErrorsNameTheKey) {
  struct Case {
    nlohmann::json changes;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases = {
      {{{"vocab_size", nullptr}}, {"vocab_size", "missing"}},
      {{{"vocab_size", "x"}}, {"vocab_size", "\"x\""}},
      {{{"hidden_size", 0}}, {"hidden_size", "at least 1"}},
      {{{"hidden_size", 30}}, {"hidden_size", "num_attention_heads"}},
      {{{"num_key_value_heads", 3}}, {"num_attention_heads", "num_key_value_heads 3"}},
      {{{"head_dim", 5}}, {"head_dim", "even"}},
      {{{"rms_norm_eps", 0}}, {"rms_norm_eps"}},
      {{{"hidden_act", "gelu"}}, {"hidden_act", "gelu", "silu"}},
      {{{"architectures", {"GPT2LMHeadModel"}}}, {"architectures", "GPT2LMHeadModel", "Qwen3ForCausalLM"}},
      {{{"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}}}, {"rope_scaling.rope_type", "yarn", "llama3"}},
      {{{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}, {"rope_scaling.rope_type", "dynamic"}},
      {{{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 2.0}}}}, {"rope_scaling.low_freq_factor", "missing"}},
      {{{"partial_rotary_factor", 0.5}}, {"partial_rotary_factor"}},
      {{{"tie_word_embeddings", 1}}, {"tie_word_embeddings", "true or false"}},
      {{{"eos_token_id", 100}}, {"eos_token_id", "vocab_size 100"}},
  };
  for (const Case& c : cases) {
    const auto config = ParseModelConfig(With(Llama(), c.changes).dump());
    ASSERT_FALSE(config.ok()) << c.changes;
    for (const std::string& word : c.words) EXPECT_THAT(std::string(config.status().message()), HasSubstr(word));
  }
  EXPECT_THAT(ParseModelConfig("{\"a\": "), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte 7")));
}

TEST(ModelConfigTest, FolderWithoutConfigIsNamed) {
  const sluice::testing::TempDir folder;
  EXPECT_THAT(
      LoadModelConfig(folder.path()),
      StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr(folder.path().string()), HasSubstr("config.json"))));
}

TEST(ModelConfigTest, ExportKeepsTheKeysOfTheSource) {
  const std::string file = With(Llama(), {{"torch_dtype", "bfloat16"}, {"something_else", 5}}).dump();
  ASSERT_OK_AND_ASSIGN(ModelConfig config, ParseModelConfig(file, R"({"max_position_embeddings": 77})"));
  EXPECT_EQ(config.storage_dtype, kernels::DType::kBFloat16);
  config.tie_word_embeddings = true;
  const nlohmann::json exported = nlohmann::json::parse(ExportConfigJson(config, kernels::DType::kFloat32));
  EXPECT_EQ(exported["something_else"], 5);
  EXPECT_EQ(exported["max_position_embeddings"], 77);
  EXPECT_EQ(exported["torch_dtype"], "float32");
  EXPECT_EQ(exported["tie_word_embeddings"], true);
}

TEST(ModelConfigTest, AValueHeadIsAClassifierWithOneLabel) {
  const nlohmann::json tied = With(Llama(), {{"tie_word_embeddings", true}});
  for (const nlohmann::json& language : {Llama(), tied}) {
    ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseValueModelConfig(language.dump()));
    EXPECT_TRUE(config.value_head);
    EXPECT_EQ(config.architecture, "LlamaForCausalLM");
    const std::string exported = ExportConfigJson(config, kernels::DType::kFloat32);
    const nlohmann::json json = nlohmann::json::parse(exported);
    EXPECT_EQ(json["architectures"], nlohmann::json({"LlamaForSequenceClassification"}));
    EXPECT_EQ(json["id2label"].size(), 1u);
    // What was written is read, as a value model alone.
    ASSERT_OK_AND_ASSIGN(const ModelConfig again, ParseValueModelConfig(exported));
    EXPECT_TRUE(again.value_head);
    EXPECT_EQ(ExportConfigJson(again, kernels::DType::kFloat32), exported);
    EXPECT_THAT(ParseModelConfig(exported), StatusIs(absl::StatusCode::kInvalidArgument,
                                                     HasSubstr("LlamaForSequenceClassification is not supported")));
  }
  const auto classifier = [](const nlohmann::json& changes) {
    const nlohmann::json config = With(Llama(), {{"architectures", {"LlamaForSequenceClassification"}}});
    return ParseValueModelConfig(With(config, changes).dump());
  };
  EXPECT_OK(classifier({{"num_labels", 1}}));
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("one label"));
  EXPECT_THAT(classifier(nlohmann::json::object()), refused) << "transformers' default is two";
  EXPECT_THAT(classifier({{"num_labels", 3}}), refused);
  EXPECT_THAT(classifier({{"id2label", {{"0", "bad"}, {"1", "good"}}}, {"num_labels", 1}}), refused);
}

TEST(ModelConfigTest, TokenizerMustFitTheEmbedding) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(Llama().dump()));
  EXPECT_OK(CheckVocabularySize(config, 100));
  EXPECT_OK(CheckVocabularySize(config, 60));
  EXPECT_THAT(CheckVocabularySize(config, 101),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("vocab_size"), HasSubstr("100"))));
}

TEST(FlopsTest, CountsMatricesAndAttention) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(Llama().dump()));
  // Per layer 32 x (64 + 32) of attention and 3 x 32 x 48 of MLP; head 32 x 100.
  const double matrices = 4 * (32.0 * 96 + 3 * 32 * 48) + 32 * 100;
  const std::vector<int64_t> lengths = {10, 20};
  EXPECT_DOUBLE_EQ(TrainingFlops(config, lengths), 6 * matrices * 30 + 6 * (100.0 + 400) * 8 * 4 * 4);
}

}  // namespace
}  // namespace sluice::engine
