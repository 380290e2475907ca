#include "engine/model/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/file_system.h"
#include "common/testing/status_matchers.h"
#include "engine/checkpoint/model_folder.h"
#include "engine/model/causal_lm.h"
#include "engine/model/load_parameters.h"
#include "engine/model/testing/golden_model.h"
#include "kernels/flat/flat.h"
#include "kernels/philox.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Folders that broke other loaders, each with what must happen (tests/golden/checkpoint/k02).
constexpr char kCases[] = "tests/golden/checkpoint/k02";

struct Loaded {
  std::unique_ptr<Parameters> parameters;
  std::vector<std::string> warnings;
};

absl::StatusOr<Loaded> LoadCase(const std::string& name, kernels::DType dtype = kernels::DType::kFloat32) {
  ASSIGN_OR_RETURN(const ModelFolder folder, ModelFolder::Open(PosixFileSystem(), std::string(kCases) + "/" + name));
  ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(folder.config_json()));
  Loaded loaded;
  ASSIGN_OR_RETURN(loaded.parameters, LoadParameters(config, {.dtype = dtype}, folder, loaded.warnings));
  return loaded;
}

TEST(LoadParametersTest, FoldersThatLoadGiveTheirLogits) {
  std::ifstream file(std::string(kCases) + "/expected.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  const std::vector<int32_t> ids = cases["input_ids"];
  const MicroBatch batch =
      testing::Pack({ids}, {std::vector<int32_t>(ids.size(), kIgnoreLabel)}, static_cast<int64_t>(ids.size()));
  int checked = 0;
  for (const nlohmann::json& c : cases["folders"]) {
    if (!c.contains("logits")) continue;
    SCOPED_TRACE(c["folder"].get<std::string>());
    ASSERT_OK_AND_ASSIGN(const Loaded loaded, LoadCase(c["folder"]));
    ASSERT_OK_AND_ASSIGN(const auto model,
                         CausalLm::Create(loaded.parameters.get(), {.token_slots = batch.token_slots()}));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, model->Logits(batch));
    EXPECT_NEAR(std::accumulate(logits.begin(), logits.end(), 0.0), c["logits"]["sum_of_logits"].get<double>(), 1e-3);
    const std::vector<float> first_six = c["logits"]["first_six_logits_of_last_position"];
    const auto last = logits.end() - loaded.parameters->config().vocab_size;
    EXPECT_EQ(testing::Difference({last, last + 6}, first_six, 0, 1e-5), "");
    ++checked;
  }
  EXPECT_EQ(checked, 8);
}

TEST(LoadParametersTest, FoldersThatDoNotFitNameTheTensor) {
  const auto error = [](const std::string& name) { return std::string(LoadCase(name).status().message()); };
  EXPECT_THAT(error("untied_without_head"), HasSubstr("lm_head.weight is missing"));
  EXPECT_THAT(error("missing_tensor"), HasSubstr("model.layers.1.mlp.up_proj.weight is missing"));
  EXPECT_THAT(error("wrong_shape"),
              HasSubstr("model.layers.0.self_attn.k_proj.weight is [16, 16], config needs [8, 16]"));
  EXPECT_THAT(error("vocabulary_too_small"),
              AllOf(HasSubstr("embed_tokens"), HasSubstr("has 30 rows, vocab_size is 32")));
  EXPECT_THAT(error("missing_tensor"), HasSubstr(std::string(kCases) + "/missing_tensor"));
}

TEST(LoadParametersTest, OdditiesAreToldOnce) {
  ASSERT_OK_AND_ASSIGN(const Loaded extra, LoadCase("extra_tensors"));
  EXPECT_THAT(extra.warnings, ElementsAre(AllOf(HasSubstr("surprise.weight"), HasSubstr("rotary_emb.inv_freq"),
                                                HasSubstr("2 tensors"))));
  ASSERT_OK_AND_ASSIGN(const Loaded other_head, LoadCase("tied_with_other_head"));
  EXPECT_THAT(other_head.warnings, ElementsAre(HasSubstr("lm_head.weight")));
  EXPECT_FALSE(other_head.parameters->config().tie_word_embeddings);
  ASSERT_OK_AND_ASSIGN(const Loaded equal_head, LoadCase("tied_with_equal_head"));
  EXPECT_THAT(equal_head.warnings, IsEmpty());
  EXPECT_TRUE(equal_head.parameters->config().tie_word_embeddings);
  ASSERT_OK_AND_ASSIGN(const HostTensors exported, equal_head.parameters->ExportValues(kernels::DType::kFloat32));
  for (const TensorData& tensor : exported.tensors) EXPECT_NE(tensor.spec.name, "lm_head.weight");
}

TEST(ParametersTest, ExportGivesBackWhatWasLoaded) {
  ASSERT_OK_AND_ASSIGN(const ModelFolder folder, ModelFolder::Open(PosixFileSystem(), std::string(kCases) + "/untied"));
  // The matrices of the cases are multiples of 1/128 up to 1/2: exact in bf16, so both types give the same numbers.
  for (const kernels::DType storage : {kernels::DType::kFloat32, kernels::DType::kBFloat16}) {
    ASSERT_OK_AND_ASSIGN(const Loaded loaded, LoadCase("untied", storage));
    ASSERT_OK_AND_ASSIGN(const HostTensors exported, loaded.parameters->ExportValues(kernels::DType::kFloat32));
    ASSERT_EQ(exported.tensors.size(), folder.TensorNames().size());
    for (const TensorData& tensor : exported.tensors) {
      if (storage == kernels::DType::kBFloat16 && tensor.spec.shape.size() == 1) continue;  // norms are 1 + k/512
      ASSERT_OK_AND_ASSIGN(const TensorData source, folder.Tensor(tensor.spec.name, tensor.spec.shape));
      ASSERT_EQ(tensor.bytes.size(), source.bytes.size());
      EXPECT_EQ(std::memcmp(tensor.bytes.data(), source.bytes.data(), source.bytes.size()), 0) << tensor.spec.name;
    }
    ASSERT_OK_AND_ASSIGN(const HostTensors narrow, loaded.parameters->ExportValues(kernels::DType::kBFloat16));
    EXPECT_EQ(narrow.tensors[0].spec.dtype, DataType::kBF16);
  }
}

TEST(ParametersTest, LayoutPutsMatricesFirstAndFusedGroupsTogether) {
  for (const std::string& name : testing::GoldenModelNames()) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const testing::GoldenModel golden, testing::LoadGoldenModel(name));
    const ParameterLayout layout(golden.config);
    int64_t end = 0;
    for (const ParameterSpec& spec : layout.parameters()) {
      EXPECT_GE(spec.offset, end);
      end = spec.offset + spec.shape.elements();
      EXPECT_EQ(spec.decayed, spec.shape.rank() == 2) << spec.name;
      EXPECT_EQ(spec.decayed, end <= layout.decayed_size()) << spec.name;
    }
    EXPECT_LE(end, layout.size());
    const ParameterSpec* gate = layout.Find("model.layers.1.mlp.gate_proj.weight");
    const ParameterSpec* up = layout.Find("model.layers.1.mlp.up_proj.weight");
    EXPECT_EQ(up->offset, gate->offset + gate->shape.elements());
    EXPECT_EQ(gate->offset % kParameterAlignment, 0);
    EXPECT_EQ(layout.Find("model.layers.2.mlp.up_proj.weight"), nullptr);
  }
}

TEST(ParametersTest, RandomValuesDependOnSeedAndNameOnly) {
  ASSERT_OK_AND_ASSIGN(const testing::GoldenModel golden, testing::LoadGoldenModel("qwen2"));
  ASSERT_OK_AND_ASSIGN(const auto first, Parameters::CreateRandom(golden.config, {}, 7));
  ASSERT_OK_AND_ASSIGN(const auto other_seed, Parameters::CreateRandom(golden.config, {}, 8));
  ASSERT_OK_AND_ASSIGN(ModelConfig deeper, ParseModelConfig(golden.config.json, R"({"num_hidden_layers": 3})"));
  ASSERT_OK_AND_ASSIGN(const auto deep, Parameters::CreateRandom(deeper, {.gradients = false}, 7));

  const auto values = [](const Parameters& parameters, const std::string& name) {
    const ParameterSpec* spec = parameters.layout().Find(name);
    const float* begin = parameters.values().as<float>() + spec->offset;
    return std::vector<float>(begin, begin + spec->shape.elements());
  };
  const std::string down = "model.layers.1.mlp.down_proj.weight";
  EXPECT_EQ(values(*first, down), values(*deep, down));
  EXPECT_NE(values(*first, down), values(*other_seed, down));
  EXPECT_NE(values(*first, down), values(*first, "model.layers.0.mlp.down_proj.weight"));
  for (const float bias : values(*first, "model.layers.0.self_attn.q_proj.bias")) EXPECT_EQ(bias, 0.0f);
  for (const float weight : values(*first, "model.norm.weight")) EXPECT_EQ(weight, 1.0f);
  double squares = 0, sum = 0;
  const std::vector<float> embedding = values(*first, "model.embed_tokens.weight");
  for (const float v : embedding) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  // 1024 draws with deviation 0.02: the mean within 4 standard errors, the deviation within 10 %.
  EXPECT_NEAR(sum / 1024, 0, 4 * 0.02 / 32);
  EXPECT_NEAR(std::sqrt(squares / 1024), 0.02, 0.002);
}

TEST(PhiloxTest, GivesThePublishedNumbers) {
  // Known answers distributed with Random123 (kat_vectors, philox4x32 10).
  EXPECT_THAT(kernels::Philox(kernels::PhiloxBlock{0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(
      kernels::Philox(kernels::PhiloxBlock{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

}  // namespace
}  // namespace sluice::engine
