// The model and AdamW on a GPU: against the CPU, and against themselves in other ways of running.
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common/testing/status_matchers.h"
#include "engine/model/causal_lm.h"
#include "engine/model/testing/golden_model.h"
#include "engine/model/testing/run_batch.h"
#include "engine/optim/adamw_optimizer.h"

namespace sluice::engine {
namespace {

constexpr int64_t kSlots = 512;
constexpr char kConfig[] = R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 1000,
  "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000,
  "max_position_embeddings": 2048, "hidden_act": "silu"})";

class CudaModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU on this machine: the tests on it were not run";
    ASSERT_OK_AND_ASSIGN(config_, ParseModelConfig(kConfig));
    // Batches of different lengths and numbers of sequences, with slots that are not scored, and tails.
    for (const std::vector<int>& lengths :
         {std::vector<int>{200, 3, 150}, {512}, std::vector<int>(30, 16), {1, 400}, {500}}) {
      std::mt19937 random(static_cast<uint32_t>(lengths.size()));
      std::vector<std::vector<int32_t>> ids, labels;
      for (const int length : lengths) {
        ids.emplace_back();
        labels.emplace_back();
        for (int i = 0; i < length; ++i) {
          ids.back().push_back(static_cast<int32_t>(random() % 1000));
          labels.back().push_back(i % 3 == 0 ? kIgnoreLabel : static_cast<int32_t>(random() % 1000));
        }
      }
      batches_.push_back(testing::Pack(ids, labels, kSlots));
    }
  }

  std::unique_ptr<Parameters> NewParameters(kernels::DType dtype, kernels::Device device) {
    auto parameters = Parameters::CreateRandom(config_, {.dtype = dtype, .device = device}, 3);
    EXPECT_OK(parameters);
    return *std::move(parameters);
  }

  struct Result {
    std::vector<double> losses;
    std::vector<double> norms;
    std::vector<float> weights;
  };

  // Steps of one and of two micro-batches.
  Result Train(kernels::DType dtype, kernels::Device device, CausalLmOptions options) {
    options.token_slots = kSlots;
    const auto parameters = NewParameters(dtype, device);
    const auto model = CausalLm::Create(parameters.get(), options);
    EXPECT_OK(model);
    const auto optimizer = AdamWOptimizer::Create(parameters.get(), {});
    EXPECT_OK(optimizer);
    Result result;
    for (int step = 0; step < 8; ++step) {
      EXPECT_OK((*model)->ResetLoss());
      for (int part = 0; part < 1 + step % 2; ++part) {
        const MicroBatch& batch = batches_[static_cast<size_t>(step + 3 * part) % batches_.size()];
        EXPECT_OK(
            (*model)->ForwardBackward(batch, 1e-3, part == 0 ? GradientMode::kOverwrite : GradientMode::kAccumulate));
      }
      EXPECT_OK((*optimizer)->Step(1e-3, 0.1, (*model)->loss_sum()));
      const auto applied = (*optimizer)->Read();
      EXPECT_OK(applied);
      EXPECT_FALSE(applied->skipped);
      result.losses.push_back(applied->loss_sum);
      result.norms.push_back(applied->grad_norm);
    }
    const auto exported = parameters->ExportValues(kernels::DType::kFloat32);
    for (const TensorData& tensor : exported->tensors) {
      const float* begin = reinterpret_cast<const float*>(tensor.bytes.data());
      result.weights.insert(result.weights.end(), begin, begin + tensor.bytes.size() / sizeof(float));
    }
    return result;
  }

  static void ExpectSame(const Result& got, const Result& want) {
    EXPECT_EQ(got.losses, want.losses);
    EXPECT_EQ(got.norms, want.norms);
    EXPECT_EQ(got.weights, want.weights);
  }

  static constexpr kernels::DType kF = kernels::DType::kFloat32, kB = kernels::DType::kBFloat16;
  const kernels::Device gpu_ = kernels::Device::Cuda(0);
  ModelConfig config_;
  std::vector<MicroBatch> batches_;
};

TEST_F(CudaModelTest, FollowsTheCpu) {
  for (const kernels::DType dtype : {kF, kB}) {
    const Result want = Train(kF, kernels::Device::Cpu(), {});
    const Result got = Train(dtype, gpu_, {});
    for (size_t i = 0; i < want.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i], want.losses[i], (dtype == kF ? 1e-5 : 2e-3) * want.losses[i]) << "step " << i;
      EXPECT_NEAR(got.norms[i], want.norms[i], (dtype == kF ? 1e-4 : 2e-2) * want.norms[i]) << "step " << i;
    }
  }
}

TEST_F(CudaModelTest, RecordedGraphsChangeNoBit) {
  ExpectSame(Train(kB, gpu_, {.deterministic = true, .cuda_graphs = true}),
             Train(kB, gpu_, {.deterministic = true, .cuda_graphs = false}));
}

TEST_F(CudaModelTest, RecomputingChangesNoBit) {
  const Result want = Train(kB, gpu_, {.recompute = Recompute::kNone, .deterministic = true});
  for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
    ExpectSame(Train(kB, gpu_, {.recompute = recompute, .deterministic = true}), want);
  }
}

TEST_F(CudaModelTest, DeterministicRunsRepeat) {
  ExpectSame(Train(kB, gpu_, {.deterministic = true}), Train(kB, gpu_, {.deterministic = true}));
}

TEST_F(CudaModelTest, MovingOutAndBackChangesNoBit) {
  const auto parameters = NewParameters(kB, gpu_);
  ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(parameters.get(), {.token_slots = kSlots}));
  ASSERT_OK_AND_ASSIGN(const auto optimizer, AdamWOptimizer::Create(parameters.get(), {}));
  const auto step = [&](int index) -> double {
    const auto loss = testing::ForwardBackwardLoss(*model, batches_[static_cast<size_t>(index)], 1e-3);
    EXPECT_OK(loss);
    return *loss;
  };
  step(1);
  ASSERT_OK(optimizer->Step(1e-3, 0.1));
  step(4);
  const double want = step(4);
  const kernels::Device host = kernels::Device::Cpu();
  ASSERT_OK(parameters->MoveValues(host));
  ASSERT_OK(parameters->MoveGradients(host));
  ASSERT_OK(optimizer->Move(host));
  EXPECT_FALSE(model->Forward(batches_[0]).ok());  // the weights are elsewhere
  ASSERT_OK(parameters->MoveValues(gpu_));
  ASSERT_OK(parameters->MoveGradients(gpu_));
  ASSERT_OK(optimizer->Move(gpu_));
  model->ForgetRecorded();
  EXPECT_EQ(step(4), want);
  ASSERT_OK(optimizer->Step(1e-3, 0.1));
  ASSERT_OK_AND_ASSIGN(const OptimizerStepResult applied, optimizer->Read());
  EXPECT_FALSE(applied.skipped);
  EXPECT_EQ(optimizer->step_count(), 2);
}

}  // namespace
}  // namespace sluice::engine
