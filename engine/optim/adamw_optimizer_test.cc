#include "engine/optim/adamw_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/testing/status_matchers.h"
#include "engine/model/testing/golden_model.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

// How parameters and state are held.
struct Storage {
  const char* name;
  kernels::DType dtype;
  bool master_weights;
  kernels::DType moments;
};

class AdamWOptimizerTest : public ::testing::TestWithParam<Storage> {
 protected:
  void SetUp() override {
    auto golden = testing::LoadGoldenModel("qwen2");
    ASSERT_OK(golden);
    config_ = golden->config;
  }

  static AdamWOptimizerOptions Options(AdamWOptimizerOptions options = {}) {
    options.master_weights = GetParam().master_weights;
    options.moments_dtype = GetParam().moments;
    return options;
  }

  std::unique_ptr<Parameters> NewParameters() {
    auto parameters = Parameters::CreateRandom(config_, {.dtype = GetParam().dtype}, 3);
    EXPECT_OK(parameters);
    return *std::move(parameters);
  }

  // Gradients of step `step`: the same for every run.
  static void SetGradients(Parameters& parameters, int step) {
    float* gradients = parameters.gradients().as<float>();
    EXPECT_OK(parameters.ZeroGradients());
    for (const ParameterSpec& spec : parameters.layout().parameters()) {
      for (int64_t i = 0; i < spec.shape.elements(); ++i) {
        gradients[spec.offset + i] = std::sin(static_cast<float>(step) + 0.1f * static_cast<float>(spec.offset + i));
      }
    }
  }

  static std::vector<char> Bytes(kernels::ConstTensorView view) {
    const char* begin = static_cast<const char*>(view.data);
    return {begin, begin + view.bytes()};
  }

  static std::vector<TensorData> Flatten(const std::vector<HostTensors>& state) {
    std::vector<TensorData> all;
    for (const HostTensors& part : state) all.insert(all.end(), part.tensors.begin(), part.tensors.end());
    return all;
  }

  ModelConfig config_;
};

TEST_P(AdamWOptimizerTest, StateRoundTripsBitForBit) {
  const auto run = [&](Parameters& parameters, AdamWOptimizer& optimizer, int first, int last) {
    for (int step = first; step < last; ++step) {
      SetGradients(parameters, step);
      ASSERT_OK(optimizer.Step(1e-2, 0.1));
      ASSERT_OK(optimizer.Read());
    }
  };
  const auto whole = NewParameters();
  ASSERT_OK_AND_ASSIGN(const auto whole_optimizer, AdamWOptimizer::Create(whole.get(), Options()));
  run(*whole, *whole_optimizer, 0, 6);

  const auto first = NewParameters();
  ASSERT_OK_AND_ASSIGN(const auto first_optimizer, AdamWOptimizer::Create(first.get(), Options()));
  run(*first, *first_optimizer, 0, 3);
  ASSERT_OK_AND_ASSIGN(const std::vector<HostTensors> state, first_optimizer->ExportState());
  ASSERT_OK_AND_ASSIGN(const HostTensors values, first->ExportValues(GetParam().dtype));

  ASSERT_OK_AND_ASSIGN(const auto second, Parameters::CreateRandom(config_, {.dtype = GetParam().dtype}, 99));
  ASSERT_OK_AND_ASSIGN(const auto second_optimizer, AdamWOptimizer::Create(second.get(), Options()));
  ASSERT_OK(second->ImportValues(values.tensors));
  ASSERT_OK(second_optimizer->ImportState(Flatten(state), first_optimizer->step_count()));
  EXPECT_EQ(Bytes(second->values()), Bytes(first->values()));
  run(*second, *second_optimizer, 3, 6);
  EXPECT_EQ(Bytes(second->values()), Bytes(whole->values()));
  EXPECT_EQ(second_optimizer->step_count(), 6);

  std::vector<TensorData> incomplete = Flatten(state);
  incomplete.pop_back();
  EXPECT_THAT(second_optimizer->ImportState(incomplete, 3),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.norm.weight is missing")));
}

TEST_P(AdamWOptimizerTest, NonFiniteGradientChangesNothing) {
  const auto parameters = NewParameters();
  ASSERT_OK_AND_ASSIGN(const auto optimizer, AdamWOptimizer::Create(parameters.get(), Options()));
  SetGradients(*parameters, 0);
  ASSERT_OK(optimizer->Step(1e-2, 0.1));
  ASSERT_OK(optimizer->Read());
  ASSERT_OK_AND_ASSIGN(const std::vector<HostTensors> state, optimizer->ExportState());
  const std::vector<char> before = Bytes(parameters->values());
  const std::vector<char> moment(reinterpret_cast<const char*>(state[0].tensors[0].bytes.data()),
                                 reinterpret_cast<const char*>(state[0].tensors[0].bytes.data()) + 64);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    SetGradients(*parameters, 1);
    parameters->gradients().as<float>()[parameters->layout().size() / 2 / kParameterAlignment * kParameterAlignment] =
        bad;
    ASSERT_OK(optimizer->Step(1e-2, 0.1));
    ASSERT_OK_AND_ASSIGN(const OptimizerStepResult result, optimizer->Read());
    EXPECT_TRUE(result.skipped);
    EXPECT_FALSE(std::isfinite(result.grad_norm));
  }
  EXPECT_EQ(Bytes(parameters->values()), before);
  EXPECT_EQ(optimizer->step_count(), 1);
  ASSERT_OK_AND_ASSIGN(const std::vector<HostTensors> after, optimizer->ExportState());
  EXPECT_TRUE(
      std::equal(moment.begin(), moment.end(), reinterpret_cast<const char*>(after[0].tensors[0].bytes.data())));
}

TEST_P(AdamWOptimizerTest, NormIsExactAndClips) {
  const auto parameters = NewParameters();
  ASSERT_OK_AND_ASSIGN(const auto optimizer, AdamWOptimizer::Create(parameters.get(), Options({.clip_grad = 2.0})));
  SetGradients(*parameters, 5);
  double squares = 0;
  for (int64_t i = 0; i < parameters->layout().size(); ++i) {
    const double g = parameters->gradients().as<float>()[i];
    squares += g * g;
  }
  ASSERT_OK(optimizer->Step(1e-3, 0));
  ASSERT_OK_AND_ASSIGN(const OptimizerStepResult result, optimizer->Read());
  EXPECT_NEAR(result.grad_norm, std::sqrt(squares), 1e-12 * std::sqrt(squares));
  EXPECT_NEAR(result.clip_factor, 2.0 / (result.grad_norm + 1e-6), 1e-7);

  ASSERT_OK_AND_ASSIGN(const auto unclipped, AdamWOptimizer::Create(parameters.get(), Options({.clip_grad = 0})));
  ASSERT_OK(unclipped->Step(1e-3, 0));
  ASSERT_OK_AND_ASSIGN(const OptimizerStepResult free, unclipped->Read());
  EXPECT_EQ(free.clip_factor, 1.0);
  EXPECT_EQ(free.grad_norm, result.grad_norm);
}

TEST_P(AdamWOptimizerTest, OnlyMatricesAreDecayedUnlessAsked) {
  for (const bool decay_all : {false, true}) {
    const auto parameters = NewParameters();
    ASSERT_OK_AND_ASSIGN(const auto optimizer,
                         AdamWOptimizer::Create(parameters.get(), Options({.decay_all_parameters = decay_all})));
    ASSERT_OK(parameters->ZeroGradients());

    const auto values = [&](const std::string& name) {
      const auto exported = parameters->ExportValues(kernels::DType::kFloat32);
      const int64_t offset = parameters->layout().Find(name)->offset;
      // The first tensor starts the flat array, so this is flat[offset].
      return reinterpret_cast<const float*>(exported->tensors[0].bytes.data())[offset];
    };
    const float norm = values("model.norm.weight"), matrix = values("model.layers.1.mlp.down_proj.weight");
    // Zero gradients: decay is all that moves a parameter.
    ASSERT_OK(optimizer->Step(0.1, 0.5));
    const double tolerance = GetParam().dtype == kernels::DType::kFloat32 ? 1e-6 : 5e-3;
    EXPECT_NEAR(values("model.norm.weight") / norm, decay_all ? 0.95 : 1.0, tolerance);
    EXPECT_NEAR(values("model.layers.1.mlp.down_proj.weight") / matrix, 0.95, tolerance);
  }
}

// The reason for masters, and for stochastic rounding without them: steps smaller than half a bf16 unit add up.
TEST_P(AdamWOptimizerTest, SmallStepsAddUp) {
  const auto parameters = NewParameters();
  ASSERT_OK_AND_ASSIGN(const auto optimizer, AdamWOptimizer::Create(parameters.get(), Options({.clip_grad = 0})));
  // All elements of a norm weight, so that the mean of stochastic rounding shows.
  const ParameterSpec& spec = *parameters->layout().Find("model.layers.0.input_layernorm.weight");
  const int64_t count = spec.shape.elements();
  const auto mean = [&] {
    const auto exported = parameters->ExportValues(kernels::DType::kFloat32);
    const float* values = reinterpret_cast<const float*>(exported->tensors[0].bytes.data()) + spec.offset;
    return std::accumulate(values, values + count, 0.0) / static_cast<double>(count);
  };
  const double before = mean();
  for (int step = 0; step < 400; ++step) {
    ASSERT_OK(parameters->ZeroGradients());
    std::fill_n(parameters->gradients().as<float>() + spec.offset, count, 1.0f);
    ASSERT_OK(optimizer->Step(1e-4, 0));
  }
  // AdamW's step is the learning rate where the gradient does not change.
  EXPECT_NEAR(before - mean(), 0.04, 4e-3);
}

TEST(AdamWOptimizerCreateTest, NeedsGradients) {
  ASSERT_OK_AND_ASSIGN(const testing::GoldenModel golden, testing::LoadGoldenModel("qwen3"));
  ASSERT_OK_AND_ASSIGN(const auto parameters, Parameters::CreateRandom(golden.config, {.gradients = false}, 1));
  EXPECT_THAT(AdamWOptimizer::Create(parameters.get(), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("gradients")));
}

constexpr kernels::DType kF = kernels::DType::kFloat32;
constexpr kernels::DType kB = kernels::DType::kBFloat16;
INSTANTIATE_TEST_SUITE_P(Storages, AdamWOptimizerTest,
                         ::testing::Values(Storage{"fp32", kF, true, kF}, Storage{"bf16", kB, true, kF},
                                           Storage{"bf16_moments", kB, true, kB}, Storage{"bf16_only", kB, false, kB}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sluice::engine
