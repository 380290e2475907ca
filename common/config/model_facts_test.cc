#include "common/config/model_facts.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kSmolLm2[] = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 576, "intermediate_size": 1536,
  "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "tie_word_embeddings": true,
  "vocab_size": 49152})";
constexpr char kQwen2Half[] = R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864,
  "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "tie_word_embeddings": true,
  "vocab_size": 151936})";
constexpr char kQwen3Small[] =
    R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3072, "head_dim": 128,
  "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "tie_word_embeddings": true,
  "vocab_size": 151936})";
constexpr char kLlama3[] = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "tie_word_embeddings": false,
  "vocab_size": 128256})";

int64_t Parameters(const std::string& config) {
  const auto facts = ParseModelFacts(config);
  EXPECT_TRUE(facts.ok()) << facts.status();
  return facts.ok() ? facts->parameters : 0;
}

// The published sizes of the models.
TEST(ModelFactsTest, ParametersOfPublishedModels) {
  EXPECT_EQ(Parameters(kSmolLm2), 134'515'008);
  EXPECT_EQ(Parameters(kQwen2Half), 494'032'768);
  EXPECT_EQ(Parameters(kQwen3Small), 596'049'920);
  EXPECT_EQ(Parameters(kLlama3), 8'030'261'248);
}

TEST(ModelFactsTest, OverridesReplaceKeys) {
  google::protobuf::Struct overrides;
  (*overrides.mutable_fields())["num_hidden_layers"].set_number_value(2);
  ASSERT_OK_AND_ASSIGN(const ModelFacts facts, ParseModelFacts(kSmolLm2, overrides));
  EXPECT_EQ(facts.layers, 2);
}

TEST(ModelFactsTest, ErrorsNameTheKey) {
  const auto error = [](const std::string& text) { return ParseModelFacts(text).status(); };
  EXPECT_THAT(error("[1]"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a JSON object")));
  EXPECT_THAT(error("{}"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("architectures")));
  EXPECT_THAT(error(R"({"architectures": ["GPT2LMHeadModel"]})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("GPT2LMHeadModel is not supported")));
  std::string text = kSmolLm2;
  text.replace(text.find("576"), 3, "575");
  EXPECT_THAT(error(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("hidden_size 575 does not divide")));
  text.replace(text.find("575"), 3, "\"x\"");
  EXPECT_THAT(error(text),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("hidden_size: expected a whole number")));
}

TEST(ModelFactsTest, ACriticHasAHeadOfOneNumber) {
  testing::TempDir dir;
  dir.Write("m/config.json", kLlama3);
  std::string classifier = kSmolLm2;
  classifier.replace(classifier.find("ForCausalLM"), 11, "ForSequenceClassification");
  dir.Write("c/config.json", classifier);
  v1::JobSpec spec;
  spec.mutable_model()->set_path(dir.Join("m"));
  ASSERT_OK_AND_ASSIGN(const ModelFacts as_model, ReadCriticFacts(spec, PosixFileSystem()));
  EXPECT_EQ(as_model.parameters, 8'030'261'248 - 128'256 * 4096 + 4096);
  spec.mutable_critic()->set_path(dir.Join("c"));
  ASSERT_OK_AND_ASSIGN(const ModelFacts own, ReadCriticFacts(spec, PosixFileSystem()));
  EXPECT_EQ(own.parameters, 134'515'008 + 576);
  EXPECT_TRUE(own.value_head);
  EXPECT_EQ(as_model.architecture, "LlamaForSequenceClassification");
  EXPECT_EQ(own.architecture, "LlamaForSequenceClassification");
  spec.mutable_model()->set_path(dir.Join("c"));
  EXPECT_THAT(ReadModelFacts(spec.model(), PosixFileSystem()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not supported")));
}

TEST(ModelFactsTest, ReadsTheFolder) {
  testing::TempDir dir;
  dir.Write("m/config.json", kSmolLm2);
  v1::ModelSpec model;
  model.set_path(dir.Join("m"));
  ASSERT_OK_AND_ASSIGN(const ModelFacts facts, ReadModelFacts(model, PosixFileSystem()));
  EXPECT_EQ(facts.vocab_size, 49152);
  dir.Write("m/config.json", "{");
  EXPECT_THAT(ReadModelFacts(model, PosixFileSystem()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("m/config.json: not a JSON")));
}

}  // namespace
}  // namespace sluice
