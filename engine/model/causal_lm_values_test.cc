// CausalLm with a value head.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/file_system.h"
#include "common/testing/status_matchers.h"
#include "engine/checkpoint/safetensors_file.h"
#include "engine/device/engine_stream.h"
#include "engine/model/causal_lm.h"
#include "engine/model/testing/golden_model.h"
#include "kernels/flat/flat.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

class CausalLmValuesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto golden = testing::LoadGoldenModel(GetParam());
    ASSERT_OK(golden);
    golden_ = std::make_unique<testing::GoldenModel>(*std::move(golden));
    language_config_ = golden_->config;
    ASSERT_OK_AND_ASSIGN(golden_->config, ParseValueModelConfig(language_config_.json));
    parameters_ = Load({.seed = 3});
  }

  std::unique_ptr<Parameters> Load(const ParametersOptions& options) {
    auto parameters = testing::LoadGoldenParameters(*golden_, GetParam(), options);
    EXPECT_OK(parameters);
    return *std::move(parameters);
  }

  static std::vector<float> Array(kernels::ConstTensorView view) {
    return {view.as<float>(), view.as<float>() + view.elements()};
  }

  // A loss that weights the values by their slots: its derivatives are the weights.
  static std::vector<float> Weights(size_t slots) {
    std::vector<float> weights(slots);
    for (size_t t = 0; t < slots; ++t) weights[t] = 0.3f + 0.1f * static_cast<float>(t % 7);
    return weights;
  }

  // Gradients of that loss over batches that accumulate, with the derivatives of the whole batch's slots from `offset`.
  std::vector<float> GradientsOf(const std::vector<std::pair<MicroBatch, size_t>>& batches) {
    auto model = CausalLm::Create(parameters_.get(), {.token_slots = 64});
    EXPECT_OK(model);
    EXPECT_OK(kernels::Fill(parameters_->gradients(), 7.0f, EngineStream(parameters_->device())));
    GradientMode mode = GradientMode::kOverwrite;
    for (const auto& [batch, offset] : batches) {
      const auto loss = [&, first = offset](const std::vector<float>& values) -> absl::StatusOr<std::vector<float>> {
        const std::vector<float> all = Weights(first + values.size());
        return std::vector<float>(all.begin() + static_cast<int64_t>(first), all.end());
      };
      EXPECT_OK((*model)->ForwardBackward(batch, loss, mode));
      mode = GradientMode::kAccumulate;
    }
    std::vector<float> gradients;
    for (const ParameterSpec& spec : parameters_->layout().parameters()) {
      const std::vector<float> slice =
          Array(parameters_->gradients().Rows(spec.offset, spec.offset + spec.shape.elements()));
      gradients.insert(gradients.end(), slice.begin(), slice.end());
    }
    return gradients;
  }

  std::unique_ptr<testing::GoldenModel> golden_;
  ModelConfig language_config_;
  std::unique_ptr<Parameters> parameters_;
};

TEST_P(CausalLmValuesTest, ValuesAndGradientsEqualTransformers) {
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsFile expected,
      SafetensorsFile::Open(PosixFileSystem(), "tests/golden/model/" + GetParam() + "/values.safetensors"));
  ASSERT_OK_AND_ASSIGN(const HostTensors own, parameters_->ExportValues(kernels::DType::kFloat32));
  std::vector<TensorData> tensors = own.tensors;
  std::erase_if(tensors, [](const TensorData& tensor) { return tensor.spec.name == "score.weight"; });
  ASSERT_OK_AND_ASSIGN(tensors.emplace_back(), expected.Tensor("score.weight"));
  std::vector<std::string> warnings;
  ASSERT_OK_AND_ASSIGN(parameters_, Parameters::CreateFromTensors(golden_->config, {}, tensors, warnings));
  EXPECT_TRUE(warnings.empty());

  const auto read = [&](const std::string& name, std::vector<float>& to) {
    const auto tensor = expected.Tensor(name);
    ASSERT_OK(tensor);
    const auto* begin = reinterpret_cast<const float*>(tensor->bytes.data());
    to.insert(to.end(), begin, begin + tensor->bytes.size() / sizeof(float));
  };
  ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(parameters_.get(), {.token_slots = 64}));
  ASSERT_OK_AND_ASSIGN(std::vector<float> values, model->Values(golden_->batch));
  values.resize(static_cast<size_t>(golden_->batch.used_slots()));
  std::vector<float> want_values, want_gradients;
  read("values", want_values);
  EXPECT_EQ(testing::Difference(values, want_values, 1e-5, 2e-6), "");
  for (const ParameterSpec& spec : parameters_->layout().parameters()) read("grad." + spec.name, want_gradients);
  EXPECT_EQ(testing::Difference(GradientsOf({{golden_->batch, 0}}), want_gradients, 1e-4, 2e-5), "");
}

// A language model whose head's first row is the value head: its first logits are the values.
TEST_P(CausalLmValuesTest, AreProductsOfTheHiddenStateAndTheHead) {
  ASSERT_OK_AND_ASSIGN(const auto critic, CausalLm::Create(parameters_.get(), {.token_slots = 64}));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> values, critic->Values(golden_->batch));

  ASSERT_OK_AND_ASSIGN(const HostTensors own, parameters_->ExportValues(kernels::DType::kFloat32));
  ModelConfig config = language_config_;
  config.tie_word_embeddings = false;
  std::vector<float> head(static_cast<size_t>(config.vocab_size * config.hidden_size), 0.0f);
  const std::vector<float> weight = Array(parameters_->weights().head);
  std::copy(weight.begin(), weight.end(), head.begin());
  std::vector<TensorData> tensors = own.tensors;
  tensors.push_back({{"lm_head.weight", DataType::kF32, {config.vocab_size, config.hidden_size}},
                     std::as_bytes(std::span<const float>(head))});
  std::vector<std::string> warnings;
  ASSERT_OK_AND_ASSIGN(const auto language, Parameters::CreateFromTensors(config, {}, tensors, warnings));
  ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(language.get(), {.token_slots = 64}));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, model->Logits(golden_->batch));
  ASSERT_EQ(values.size(), static_cast<size_t>(golden_->batch.token_slots()));
  for (int64_t slot = 0; slot < golden_->batch.token_slots(); ++slot) {
    const bool used = slot < golden_->batch.used_slots();
    const float want = used ? logits[static_cast<size_t>(slot * config.vocab_size)] : 0.0f;
    EXPECT_NEAR(values[static_cast<size_t>(slot)], want, 1e-5) << slot;
  }
  EXPECT_NE(values[0], 0.0f);
}

TEST_P(CausalLmValuesTest, GradientsAreTheSlopeOfTheLoss) {
  const size_t slots = golden_->batch.input_ids.size();
  const std::vector<float> gradients = GradientsOf({{golden_->batch, 0}});
  double squared = 0;
  for (const float g : gradients) squared += static_cast<double>(g) * g;
  ASSERT_GT(squared, 0);
  // Along the gradient the loss rises by its squared length.
  const double step = 1e-3 / std::sqrt(squared);
  ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(parameters_.get(), {.token_slots = 64}));
  auto* values = static_cast<float*>(parameters_->values().data);
  const std::vector<float> before = Array(parameters_->values());
  double at[2];
  for (int side = 0; side < 2; ++side) {
    size_t next = 0;
    for (const ParameterSpec& spec : parameters_->layout().parameters()) {
      for (int64_t i = spec.offset; i < spec.offset + spec.shape.elements(); ++i) {
        values[i] = before[static_cast<size_t>(i)] + static_cast<float>((side == 0 ? -step : step) * gradients[next]);
        ++next;
      }
    }
    ASSERT_OK_AND_ASSIGN(const std::vector<float> got, model->Values(golden_->batch));
    at[side] = 0;
    for (size_t t = 0; t < slots; ++t) at[side] += static_cast<double>(Weights(slots)[t]) * got[t];
  }
  EXPECT_NEAR((at[1] - at[0]) / (2 * step), squared, 0.01 * squared);
}

TEST_P(CausalLmValuesTest, PackingSplittingAndTailChangeNothing) {
  const MicroBatch& batch = golden_->batch;
  const std::vector<float> packed = GradientsOf({{batch, 0}});
  std::vector<std::pair<MicroBatch, size_t>> apart;
  for (const int64_t s : {2, 0, 1}) {
    apart.emplace_back(testing::OneSequence(batch, s), static_cast<size_t>(batch.cu_seqlens[static_cast<size_t>(s)]));
  }
  EXPECT_EQ(testing::Difference(GradientsOf(apart), packed, 1e-5, 1e-6), "");
  MicroBatch longer = batch;
  longer.input_ids.resize(60, 5);
  longer.position_ids.resize(60, 3);
  longer.labels.resize(60, kIgnoreLabel);
  EXPECT_EQ(GradientsOf({{longer, 0}}), packed);
  EXPECT_EQ(GradientsOf({{batch, 0}}), packed);
}

TEST_P(CausalLmValuesTest, EachHeadRefusesTheOthersCalls) {
  ASSERT_OK_AND_ASSIGN(const auto critic,
                       CausalLm::Create(parameters_.get(), {.token_slots = 64, .token_losses = true}));
  const auto other_head = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("value head"));
  EXPECT_THAT(critic->Forward(golden_->batch), other_head);
  EXPECT_THAT(critic->ForwardBackward(golden_->batch, 1.0, GradientMode::kOverwrite), other_head);
  EXPECT_THAT(critic->Score(golden_->batch, {}), other_head);
  EXPECT_THAT(critic->Logits(golden_->batch), other_head);
  const auto too_few = [](const std::vector<float>&) -> absl::StatusOr<std::vector<float>> {
    return std::vector<float>(3);
  };
  EXPECT_THAT(critic->ForwardBackward(golden_->batch, too_few, GradientMode::kOverwrite),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gradients of 3 values")));
  golden_->config = language_config_;
  const auto language = Load({});
  ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(language.get(), {.token_slots = 64}));
  EXPECT_THAT(model->Values(golden_->batch), other_head);
}

TEST_P(CausalLmValuesTest, AHeadThatIsNotThereIsDrawnAndTold) {
  ASSERT_OK_AND_ASSIGN(const HostTensors own, parameters_->ExportValues(kernels::DType::kFloat32));
  std::vector<std::string> warnings;
  // Its own export: nothing to tell.
  ASSERT_OK_AND_ASSIGN(const auto again,
                       Parameters::CreateFromTensors(golden_->config, {.seed = 4}, own.tensors, warnings));
  EXPECT_TRUE(warnings.empty()) << warnings[0];
  EXPECT_EQ(Array(again->values()), Array(parameters_->values()));
  EXPECT_EQ(parameters_->layout().Find("lm_head.weight"), nullptr);

  std::vector<TensorData> headless = own.tensors;
  std::erase_if(headless, [](const TensorData& tensor) { return tensor.spec.name == "score.weight"; });
  ASSERT_OK_AND_ASSIGN(const auto same,
                       Parameters::CreateFromTensors(golden_->config, {.seed = 3}, headless, warnings));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("no score.weight"));
  EXPECT_EQ(Array(same->values()), Array(parameters_->values()));
  ASSERT_OK_AND_ASSIGN(const auto other,
                       Parameters::CreateFromTensors(golden_->config, {.seed = 4}, headless, warnings));
  EXPECT_NE(Array(other->weights().head), Array(parameters_->weights().head));
  double squares = 0;
  for (const float w : Array(other->weights().head)) squares += static_cast<double>(w) * w;
  const double deviation = std::sqrt(squares / static_cast<double>(golden_->config.hidden_size));
  EXPECT_NEAR(deviation, golden_->config.initializer_range, 0.5 * golden_->config.initializer_range);
  // As the random model draws it.
  ASSERT_OK_AND_ASSIGN(const auto random, Parameters::CreateRandom(golden_->config, {}, 3));
  EXPECT_EQ(Array(random->weights().head), Array(parameters_->weights().head));
}

INSTANTIATE_TEST_SUITE_P(Architectures, CausalLmValuesTest, ::testing::ValuesIn(testing::GoldenModelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice::engine
