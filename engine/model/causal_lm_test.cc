#include "engine/model/causal_lm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/testing/status_matchers.h"
#include "engine/model/testing/golden_model.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

class CausalLmTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto golden = testing::LoadGoldenModel(GetParam());
    ASSERT_OK(golden);
    golden_ = std::make_unique<testing::GoldenModel>(*std::move(golden));
    parameters_ = Load(kernels::DType::kFloat32);
  }

  std::unique_ptr<Parameters> Load(kernels::DType dtype) {
    auto parameters = testing::LoadGoldenParameters(*golden_, GetParam(), {.dtype = dtype});
    EXPECT_OK(parameters);
    return *std::move(parameters);
  }

  std::vector<float> Gradients(const Parameters& parameters) {
    const float* begin = parameters.gradients().as<float>();
    return {begin, begin + parameters.gradients().elements()};
  }

  // Gradients and loss of batches that accumulate.
  struct Result {
    LossSum loss;
    std::vector<float> gradients;
  };
  Result Run(Parameters& parameters, const std::vector<MicroBatch>& batches) {
    auto model = CausalLm::Create(&parameters, {.token_slots = 64});
    EXPECT_OK(model);
    EXPECT_OK(parameters.ZeroGradients());
    Result result;
    for (const MicroBatch& batch : batches) {
      const auto loss = (*model)->ForwardBackward(batch, 0.125);
      EXPECT_OK(loss);
      result.loss += *loss;
    }
    result.gradients = Gradients(parameters);
    return result;
  }

  std::unique_ptr<testing::GoldenModel> golden_;
  std::unique_ptr<Parameters> parameters_;
};

TEST_P(CausalLmTest, PackingAndSplittingChangeNothing) {
  const MicroBatch& batch = golden_->batch;
  const Result packed = Run(*parameters_, {batch});
  const Result separate = Run(
      *parameters_, {testing::OneSequence(batch, 0), testing::OneSequence(batch, 1), testing::OneSequence(batch, 2)});
  const Result reversed = Run(
      *parameters_, {testing::OneSequence(batch, 2), testing::OneSequence(batch, 1), testing::OneSequence(batch, 0)});
  EXPECT_EQ(packed.loss.weight, static_cast<double>(batch.scored_tokens()));
  EXPECT_EQ(separate.loss.weight, packed.loss.weight);
  EXPECT_NEAR(separate.loss.sum, packed.loss.sum, 1e-5 * packed.loss.sum);
  EXPECT_EQ(testing::Difference(separate.gradients, packed.gradients, 1e-5, 1e-6), "");
  EXPECT_EQ(testing::Difference(reversed.gradients, packed.gradients, 1e-5, 1e-6), "");
}

TEST_P(CausalLmTest, TailHasNoInfluence) {
  const MicroBatch& batch = golden_->batch;
  MicroBatch longer = batch;
  longer.input_ids.resize(60, 5);  // any token, any position: they belong to no sequence
  longer.position_ids.resize(60, 3);
  longer.labels.resize(60, kIgnoreLabel);
  const Result want = Run(*parameters_, {batch});
  const Result got = Run(*parameters_, {longer});
  EXPECT_EQ(got.loss.sum, want.loss.sum);
  EXPECT_EQ(got.gradients, want.gradients);
}

TEST_P(CausalLmTest, ForwardAloneGivesTheSameLossAndLogProbs) {
  ASSERT_OK_AND_ASSIGN(const auto trainer, CausalLm::Create(parameters_.get(), {.token_slots = 64}));
  ASSERT_OK_AND_ASSIGN(const auto evaluator,
                       CausalLm::Create(parameters_.get(), {.token_slots = 64, .backward = false}));
  EXPECT_LT(evaluator->peak_bytes(), trainer->peak_bytes());
  ASSERT_OK(parameters_->ZeroGradients());
  ASSERT_OK_AND_ASSIGN(const LossSum trained, trainer->ForwardBackward(golden_->batch, 1.0));
  const std::vector<float> gradients = Gradients(*parameters_);
  ASSERT_OK_AND_ASSIGN(const LossSum evaluated, evaluator->Forward(golden_->batch));
  EXPECT_NEAR(evaluated.sum, trained.sum, 1e-6 * trained.sum);
  EXPECT_EQ(testing::Difference(evaluator->token_log_probs(), trainer->token_log_probs(), 1e-6, 1e-6), "");
  EXPECT_EQ(Gradients(*parameters_), gradients);

  ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, evaluator->Logits(golden_->batch));
  const int64_t vocab = golden_->config.vocab_size;
  for (int64_t slot = 0; slot < golden_->batch.used_slots(); ++slot) {
    const int32_t label = golden_->batch.labels[static_cast<size_t>(slot)];
    const float log_prob = evaluator->token_log_probs()[static_cast<size_t>(slot)];
    if (label == kIgnoreLabel) {
      EXPECT_EQ(log_prob, 0.0f);
      continue;
    }
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v)
      sum += std::exp(static_cast<double>(logits[static_cast<size_t>(slot * vocab + v)]));
    EXPECT_NEAR(log_prob, logits[static_cast<size_t>(slot * vocab + label)] - std::log(sum), 1e-5);
  }
}

TEST_P(CausalLmTest, BFloat16FollowsFloat32) {
  const Result want = Run(*parameters_, {golden_->batch});
  const std::unique_ptr<Parameters> narrow = Load(kernels::DType::kBFloat16);
  const Result got = Run(*narrow, {golden_->batch});
  EXPECT_NEAR(got.loss.sum, want.loss.sum, 0.02 * want.loss.sum);
  // 8 bits of mantissa through two layers with large random weights: the direction is what can be asked for.
  double dot = 0, got_squares = 0, want_squares = 0;
  for (size_t i = 0; i < want.gradients.size(); ++i) {
    dot += static_cast<double>(got.gradients[i]) * want.gradients[i];
    got_squares += static_cast<double>(got.gradients[i]) * got.gradients[i];
    want_squares += static_cast<double>(want.gradients[i]) * want.gradients[i];
  }
  EXPECT_GT(dot / std::sqrt(got_squares * want_squares), 0.995);
  EXPECT_NEAR(std::sqrt(got_squares / want_squares), 1, 0.05);
}

TEST_P(CausalLmTest, RunsAreBitEqual) {
  const Result first = Run(*parameters_, {golden_->batch});
  const Result second = Run(*parameters_, {golden_->batch});
  EXPECT_EQ(first.loss.sum, second.loss.sum);
  EXPECT_EQ(first.gradients, second.gradients);
}

TEST_P(CausalLmTest, BadBatchesAreNamed) {
  ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(parameters_.get(), {.token_slots = 24}));
  const auto error = [&](const std::function<void(MicroBatch&)>& spoil) {
    MicroBatch batch = golden_->batch;
    spoil(batch);
    return model->Forward(batch).status();
  };
  EXPECT_THAT(error([](MicroBatch& b) { b.input_ids[3] = 64; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token id 64 in slot 3")));
  EXPECT_THAT(error([](MicroBatch& b) { b.labels[2] = -1; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("label -1 in slot 2")));
  EXPECT_THAT(error([](MicroBatch& b) { b.labels.back() = 1; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("slot 23 of the tail")));
  EXPECT_THAT(error([](MicroBatch& b) { b.cu_seqlens[1] = 30; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cu_seqlens")));
  EXPECT_THAT(error([](MicroBatch& b) { b.position_ids.pop_back(); }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("differ in length")));
  EXPECT_THAT(error([](MicroBatch& b) { b.input_ids.resize(25); }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("made for 24")));
}

TEST_P(CausalLmTest, EmptyBatchIsNoLoss) {
  ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(parameters_.get(), {.token_slots = 24}));
  ASSERT_OK(parameters_->ZeroGradients());
  ASSERT_OK_AND_ASSIGN(const LossSum loss, model->ForwardBackward(testing::Pack({}, {}, 24), 1.0));
  EXPECT_EQ(loss.sum, 0.0);
  EXPECT_EQ(loss.weight, 0.0);
}

INSTANTIATE_TEST_SUITE_P(Architectures, CausalLmTest, ::testing::ValuesIn(testing::GoldenModelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice::engine
