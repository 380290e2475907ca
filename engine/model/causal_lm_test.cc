#include "engine/model/causal_lm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/testing/status_matchers.h"
#include "engine/device/engine_stream.h"
#include "engine/model/testing/golden_model.h"
#include "engine/model/testing/run_batch.h"
#include "kernels/flat/flat.h"

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

  static void ClearGaps(Parameters& parameters) {
    float* gradients = parameters.gradients().as<float>();
    int64_t end = 0;
    for (const ParameterSpec& spec : parameters.layout().parameters()) {
      std::fill(gradients + end, gradients + spec.offset, 0.0f);
      end = spec.offset + spec.shape.elements();
    }
    std::fill(gradients + end, gradients + parameters.layout().size(), 0.0f);
  }

  // Gradients and loss of batches that accumulate.
  struct Result {
    double loss = 0;
    std::vector<float> gradients;
  };
  Result Run(Parameters& parameters, const std::vector<MicroBatch>& batches,
             Recompute recompute = Recompute::kSelective) {
    auto model = CausalLm::Create(&parameters, {.token_slots = 64, .recompute = recompute});
    EXPECT_OK(model);
    // What the first batch overwrites must not show.
    EXPECT_OK(kernels::Fill(parameters.gradients(), 7.0f, EngineStream(parameters.device())));
    Result result;
    GradientMode mode = GradientMode::kOverwrite;
    for (const MicroBatch& batch : batches) {
      const auto loss = testing::ForwardBackwardLoss(**model, batch, 0.125, mode);
      EXPECT_OK(loss);
      result.loss += *loss;
      mode = GradientMode::kAccumulate;
    }
    // Gaps between parameters belong to none.
    ClearGaps(parameters);
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
  EXPECT_NEAR(separate.loss, packed.loss, 1e-5 * packed.loss);
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
  EXPECT_EQ(got.loss, want.loss);
  EXPECT_EQ(got.gradients, want.gradients);
}

TEST_P(CausalLmTest, ForwardAloneGivesTheSameLossAndLogProbs) {
  ASSERT_OK_AND_ASSIGN(const auto trainer, CausalLm::Create(parameters_.get(), {.token_slots = 64}));
  ASSERT_OK_AND_ASSIGN(const auto evaluator,
                       CausalLm::Create(parameters_.get(), {.token_slots = 64, .backward = false}));
  EXPECT_LT(evaluator->bytes(), trainer->bytes());
  ASSERT_OK_AND_ASSIGN(const double trained, testing::ForwardBackwardLoss(*trainer, golden_->batch, 1.0));
  const std::vector<float> gradients = Gradients(*parameters_);
  ASSERT_OK_AND_ASSIGN(const double evaluated, testing::ForwardLoss(*evaluator, golden_->batch));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> log_probs, evaluator->TokenLogProbs());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> trained_log_probs, trainer->TokenLogProbs());
  EXPECT_NEAR(evaluated, trained, 1e-6 * trained);
  EXPECT_EQ(testing::Difference(log_probs, trained_log_probs, 1e-6, 1e-6), "");
  EXPECT_EQ(Gradients(*parameters_), gradients);

  ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, evaluator->Logits(golden_->batch));
  const int64_t vocab = golden_->config.vocab_size;
  for (int64_t slot = 0; slot < golden_->batch.used_slots(); ++slot) {
    const int32_t label = golden_->batch.labels[static_cast<size_t>(slot)];
    const float log_prob = log_probs[static_cast<size_t>(slot)];
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

TEST_P(CausalLmTest, ScoresAreLogProbsAndEntropiesOfTheLogits) {
  ASSERT_OK_AND_ASSIGN(const auto model,
                       CausalLm::Create(parameters_.get(), {.token_slots = 64, .token_losses = true}));
  constexpr float kTemperature = 0.7f;
  ASSERT_OK_AND_ASSIGN(const TokenScores scores,
                       model->Score(golden_->batch, {.temperature = kTemperature, .entropy = true}));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, model->Logits(golden_->batch));
  const int64_t vocab = golden_->config.vocab_size;
  for (int64_t slot = 0; slot < golden_->batch.token_slots(); ++slot) {
    const auto at = static_cast<size_t>(slot);
    const int32_t label = golden_->batch.labels[at];
    if (label == kIgnoreLabel) {
      EXPECT_EQ(scores.log_prob[at], 0.0f);
      EXPECT_EQ(scores.entropy[at], 0.0f);
      continue;
    }
    const float* row = logits.data() + slot * vocab;
    double sum = 0, weighted = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(row[v] / static_cast<double>(kTemperature));
    for (int64_t v = 0; v < vocab; ++v) {
      const double log_prob = row[v] / static_cast<double>(kTemperature) - std::log(sum);
      weighted -= std::exp(log_prob) * log_prob;
    }
    EXPECT_NEAR(scores.log_prob[at], row[label] / kTemperature - std::log(sum), 1e-5);
    EXPECT_NEAR(scores.entropy[at], weighted, 1e-5);
  }
  ASSERT_OK_AND_ASSIGN(const auto plain, CausalLm::Create(parameters_.get(), {.token_slots = 64}));
  EXPECT_THAT(plain->Score(golden_->batch, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("token_losses")));
}

TEST_P(CausalLmTest, ALossOfLogProbsAloneGivesTheGradientsOfCrossEntropy) {
  const Result want = Run(*parameters_, {golden_->batch});
  ASSERT_OK_AND_ASSIGN(const auto model,
                       CausalLm::Create(parameters_.get(), {.token_slots = 64, .token_losses = true}));
  ASSERT_OK(kernels::Fill(parameters_->gradients(), 7.0f, EngineStream(parameters_->device())));
  const auto loss = [](const TokenScores& scores) -> absl::StatusOr<TokenGradients> {
    return TokenGradients{std::vector<float>(scores.log_prob.size(), -0.125f), {}};
  };
  ASSERT_OK(model->ForwardBackward(golden_->batch, {}, loss, GradientMode::kOverwrite));
  ClearGaps(*parameters_);
  EXPECT_EQ(testing::Difference(Gradients(*parameters_), want.gradients, 1e-5, 1e-6), "");
  const auto short_loss = [](const TokenScores&) -> absl::StatusOr<TokenGradients> {
    return TokenGradients{{1.0f}, {}};
  };
  EXPECT_THAT(model->ForwardBackward(golden_->batch, {}, short_loss, GradientMode::kOverwrite),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gradients of 1")));
}

TEST_P(CausalLmTest, GradientsOfLogProbsAndEntropiesAreTheSlopeOfTheLoss) {
  ASSERT_OK_AND_ASSIGN(const auto model,
                       CausalLm::Create(parameters_.get(), {.token_slots = 64, .token_losses = true}));
  const TokenScoring scoring = {.temperature = 1.3f, .entropy = true};
  const auto weight = [](size_t slot) { return 0.3 + 0.1 * static_cast<double>(slot % 7); };
  const auto value = [&](const TokenScores& scores) {
    double sum = 0;
    for (size_t t = 0; t < scores.log_prob.size(); ++t)
      sum += weight(t) * (scores.log_prob[t] - 0.5 * scores.entropy[t]);
    return sum;
  };
  const auto loss = [&](const TokenScores& scores) -> absl::StatusOr<TokenGradients> {
    TokenGradients gradients;
    for (size_t t = 0; t < scores.log_prob.size(); ++t) {
      gradients.d_log_prob.push_back(static_cast<float>(weight(t)));
      gradients.d_entropy.push_back(static_cast<float>(-0.5 * weight(t)));
    }
    return gradients;
  };
  ASSERT_OK(model->ForwardBackward(golden_->batch, scoring, loss, GradientMode::kOverwrite));
  ClearGaps(*parameters_);
  const std::vector<float> gradients = Gradients(*parameters_);
  // Along the gradient the loss rises by its squared length.
  double squared = 0;
  for (const float g : gradients) squared += static_cast<double>(g) * g;
  const double step = 1e-3 / std::sqrt(squared);
  auto* values = static_cast<float*>(parameters_->values().data);
  const std::vector<float> before(values, values + gradients.size());
  double at[2];
  for (int side = 0; side < 2; ++side) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      values[i] = before[i] + static_cast<float>((side == 0 ? -step : step) * gradients[i]);
    }
    ASSERT_OK_AND_ASSIGN(const TokenScores scores, model->Score(golden_->batch, scoring));
    at[side] = value(scores);
  }
  std::copy(before.begin(), before.end(), values);
  EXPECT_NEAR((at[1] - at[0]) / (2 * step), squared, 0.01 * squared);
}

TEST_P(CausalLmTest, BFloat16FollowsFloat32) {
  const Result want = Run(*parameters_, {golden_->batch});
  const std::unique_ptr<Parameters> narrow = Load(kernels::DType::kBFloat16);
  const Result got = Run(*narrow, {golden_->batch});
  EXPECT_NEAR(got.loss, want.loss, 0.02 * want.loss);
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
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_EQ(first.gradients, second.gradients);
}

TEST_P(CausalLmTest, BadBatchesAreNamed) {
  ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(parameters_.get(), {.token_slots = 24}));
  const auto error = [&](const std::function<void(MicroBatch&)>& spoil) {
    MicroBatch batch = golden_->batch;
    spoil(batch);
    return model->Forward(batch);
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
  ASSERT_OK(kernels::Fill(parameters_->gradients(), 7.0f, EngineStream(parameters_->device())));
  ASSERT_OK_AND_ASSIGN(const double loss, testing::ForwardBackwardLoss(*model, testing::Pack({}, {}, 24), 1.0));
  EXPECT_EQ(loss, 0.0);
  EXPECT_EQ(Gradients(*parameters_), std::vector<float>(static_cast<size_t>(parameters_->layout().size()), 0.0f));
}

TEST_P(CausalLmTest, RecomputingChangesNoBit) {
  const MicroBatch& batch = golden_->batch;
  const Result want = Run(*parameters_, {batch, batch}, Recompute::kNone);
  for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
    const Result got = Run(*parameters_, {batch, batch}, recompute);
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.gradients, want.gradients);
  }
  const auto bytes = [&](Recompute recompute) {
    return CausalLm::BytesFor(golden_->config, kernels::DType::kFloat32, {.token_slots = 64, .recompute = recompute});
  };
  EXPECT_GT(bytes(Recompute::kNone), bytes(Recompute::kSelective));
  EXPECT_GT(bytes(Recompute::kSelective), bytes(Recompute::kFull));
}

TEST_P(CausalLmTest, SizeIsKnownBeforeTheModelIsMade) {
  const CausalLmOptions options = {.token_slots = 40};
  ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(parameters_.get(), options));
  EXPECT_EQ(model->bytes(), CausalLm::BytesFor(parameters_->config(), parameters_->dtype(), options));
}

INSTANTIATE_TEST_SUITE_P(Architectures, CausalLmTest, ::testing::ValuesIn(testing::GoldenModelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice::engine
