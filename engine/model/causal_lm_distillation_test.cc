// CausalLm with a teacher.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/testing/status_matchers.h"
#include "engine/device/engine_stream.h"
#include "engine/model/causal_lm.h"
#include "engine/model/testing/golden_model.h"
#include "kernels/flat/flat.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kSlots = 64;

class CausalLmDistillationTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto golden = testing::LoadGoldenModel(GetParam());
    ASSERT_OK(golden);
    golden_ = std::make_unique<testing::GoldenModel>(*std::move(golden));
    ASSERT_OK_AND_ASSIGN(parameters_, testing::LoadGoldenParameters(*golden_, GetParam(), {}));
    // Another model of the same tokens.
    ASSERT_OK_AND_ASSIGN(teacher_parameters_, Parameters::CreateRandom(golden_->config, {.gradients = false}, 9));
    ASSERT_OK_AND_ASSIGN(teacher_,
                         CausalLm::Create(teacher_parameters_.get(), {.token_slots = kSlots, .backward = false}));
    ASSERT_OK_AND_ASSIGN(student_, CausalLm::Create(parameters_.get(), {.token_slots = kSlots, .distillation = true}));
  }

  Teaching By(CausalLm& teacher, const Parameters& parameters, const MicroBatch& batch) {
    auto hidden = teacher.HiddenStates(batch);
    EXPECT_OK(hidden);
    return {.hidden = *hidden, .head = parameters.weights().head};
  }
  Teaching ByTeacher(const MicroBatch& batch) { return By(*teacher_, *teacher_parameters_, batch); }

  std::vector<float> Gradients() const {
    std::vector<float> gradients;
    for (const ParameterSpec& spec : parameters_->layout().parameters()) {
      const kernels::ConstTensorView view =
          parameters_->gradients().Rows(spec.offset, spec.offset + spec.shape.elements());
      gradients.insert(gradients.end(), view.as<float>(), view.as<float>() + view.elements());
    }
    return gradients;
  }
  absl::Status PoisonGradients() {
    return kernels::Fill(parameters_->gradients(), 7.0f, EngineStream(parameters_->device()));
  }
  double Sum(int64_t index) const { return student_->distillation_sums().as<double>()[index]; }

  std::unique_ptr<testing::GoldenModel> golden_;
  std::unique_ptr<Parameters> parameters_, teacher_parameters_;
  std::unique_ptr<CausalLm> student_, teacher_;
};

// softmax(logits / temperature) of a slot, in double.
std::vector<double> LogProbs(const std::vector<float>& logits, int64_t slot, int64_t vocabulary, double temperature) {
  std::vector<double> row(logits.begin() + slot * vocabulary, logits.begin() + (slot + 1) * vocabulary);
  for (double& value : row) value /= temperature;
  const double maximum = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const double value : row) sum += std::exp(value - maximum);
  for (double& value : row) value -= maximum + std::log(sum);
  return row;
}

TEST_P(CausalLmDistillationTest, TheLossIsOfBothModelsLogits) {
  const int64_t vocabulary = golden_->config.vocab_size;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> student, student_->Logits(golden_->batch));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> teacher, teacher_->Logits(golden_->batch));
  double forward_kl = 0, reverse_kl = 0, nll = 0;
  for (int64_t slot = 0; slot < golden_->batch.used_slots(); ++slot) {
    const int32_t label = golden_->batch.labels[static_cast<size_t>(slot)];
    if (label == kIgnoreLabel) continue;
    const std::vector<double> log_q = LogProbs(student, slot, vocabulary, 2),
                              log_p = LogProbs(teacher, slot, vocabulary, 2);
    for (size_t v = 0; v < log_q.size(); ++v) {
      forward_kl += 4 * std::exp(log_p[v]) * (log_p[v] - log_q[v]);
      reverse_kl += 4 * std::exp(log_q[v]) * (log_q[v] - log_p[v]);
    }
    nll -= LogProbs(student, slot, vocabulary, 1)[static_cast<size_t>(label)];
  }
  Teaching teaching = ByTeacher(golden_->batch);
  teaching.temperature = 2;
  teaching.kd_ratio = 0.75;
  for (const bool forward : {true, false}) {
    teaching.divergence = forward ? kernels::Divergence::kForwardKl : kernels::Divergence::kReverseKl;
    const double divergence = forward ? forward_kl : reverse_kl;
    ASSERT_OK(student_->ResetLoss());
    ASSERT_OK(student_->Forward(golden_->batch, teaching));
    EXPECT_NEAR(Sum(0), divergence, 1e-5 * divergence);
    EXPECT_NEAR(Sum(1), nll, 1e-5 * nll);
    ASSERT_OK_AND_ASSIGN(const double loss, student_->ReadLoss());
    EXPECT_NEAR(loss, 0.75 * divergence + 0.25 * nll, 1e-5 * nll);
  }
}

TEST_P(CausalLmDistillationTest, WithoutTheTeachersPartItIsFineTuning) {
  const double scale = 1.0 / 7;
  ASSERT_OK_AND_ASSIGN(const auto plain, CausalLm::Create(parameters_.get(), {.token_slots = kSlots}));
  ASSERT_OK(plain->ResetLoss());
  ASSERT_OK(plain->ForwardBackward(golden_->batch, scale, GradientMode::kOverwrite));
  ASSERT_OK_AND_ASSIGN(const double want_loss, plain->ReadLoss());
  const std::vector<float> want = Gradients();
  Teaching teaching = ByTeacher(golden_->batch);
  teaching.kd_ratio = 0;
  ASSERT_OK(PoisonGradients());
  ASSERT_OK(student_->ResetLoss());
  ASSERT_OK(student_->ForwardBackward(golden_->batch, teaching, scale, GradientMode::kOverwrite));
  ASSERT_OK_AND_ASSIGN(const double loss, student_->ReadLoss());
  EXPECT_NEAR(loss, want_loss, 1e-6 * want_loss);
  EXPECT_EQ(testing::Difference(Gradients(), want, 1e-5, 1e-6), "");
}

TEST_P(CausalLmDistillationTest, AModelHasNothingToLearnFromItself) {
  ASSERT_OK_AND_ASSIGN(const auto itself,
                       CausalLm::Create(parameters_.get(), {.token_slots = kSlots, .backward = false}));
  const Teaching teaching = By(*itself, *parameters_, golden_->batch);
  ASSERT_OK(PoisonGradients());
  ASSERT_OK(student_->ResetLoss());
  ASSERT_OK(student_->ForwardBackward(golden_->batch, teaching, 1.0, GradientMode::kOverwrite));
  EXPECT_NEAR(Sum(0), 0, 1e-5);
  const std::vector<float> gradients = Gradients();
  EXPECT_EQ(testing::Difference(gradients, std::vector<float>(gradients.size(), 0.0f), 0, 2e-5), "");
}

// The derivative of the loss along its own gradient, by a difference: the backward is that of this loss.
TEST_P(CausalLmDistillationTest, TheGradientIsTheLosss) {
  Teaching teaching = ByTeacher(golden_->batch);
  teaching.top_k = 5;
  teaching.kd_ratio = 0.6;
  ASSERT_OK(PoisonGradients());
  ASSERT_OK(student_->ForwardBackward(golden_->batch, teaching, 1.0, GradientMode::kOverwrite));
  const kernels::TensorView values = parameters_->values();
  const kernels::ConstTensorView gradients = parameters_->gradients();
  double squared_norm = 0;
  for (int64_t i = 0; i < gradients.elements(); ++i) {
    squared_norm += static_cast<double>(gradients.as<float>()[i]) * gradients.as<float>()[i];
  }
  const std::vector<float> before(values.as<float>(), values.as<float>() + values.elements());
  const double norm = std::sqrt(squared_norm), step = 2e-3;
  double losses[2];
  for (int side = 0; side < 2; ++side) {
    const double move = (side == 0 ? -step : step) / norm;
    for (int64_t i = 0; i < values.elements(); ++i) {
      values.as<float>()[i] =
          static_cast<float>(before[static_cast<size_t>(i)] + move * static_cast<double>(gradients.as<float>()[i]));
    }
    ASSERT_OK(student_->ResetLoss());
    ASSERT_OK(student_->Forward(golden_->batch, teaching));
    ASSERT_OK_AND_ASSIGN(losses[side], student_->ReadLoss());
  }
  std::copy(before.begin(), before.end(), values.as<float>());
  EXPECT_NEAR((losses[1] - losses[0]) / (2 * step) / norm, 1, 2e-3);
}

TEST_P(CausalLmDistillationTest, SequencesOneByOneGiveTheSame) {
  Teaching teaching = ByTeacher(golden_->batch);
  ASSERT_OK(PoisonGradients());
  ASSERT_OK(student_->ForwardBackward(golden_->batch, teaching, 0.1, GradientMode::kOverwrite));
  const std::vector<float> whole = Gradients();
  ASSERT_OK(student_->ResetLoss());
  ASSERT_OK(PoisonGradients());
  GradientMode mode = GradientMode::kOverwrite;
  for (int64_t i = 0; i < golden_->batch.sequences(); ++i) {
    const MicroBatch one = testing::OneSequence(golden_->batch, i);
    ASSERT_OK(student_->ForwardBackward(one, ByTeacher(one), 0.1, mode));
    mode = GradientMode::kAccumulate;
  }
  EXPECT_EQ(testing::Difference(Gradients(), whole, 1e-5, 1e-6), "");
}

TEST_P(CausalLmDistillationTest, AShorterHeadLeavesTheRestAlone) {
  Teaching teaching = ByTeacher(golden_->batch);
  int32_t most = 0;
  for (const int32_t label : golden_->batch.labels) most = std::max(most, label);
  ASSERT_LT(most + 1, golden_->config.vocab_size) << "the batch uses the last token";
  teaching.head = teaching.head.Rows(0, most + 1);
  ASSERT_OK(PoisonGradients());
  ASSERT_OK(student_->ForwardBackward(golden_->batch, teaching, 1.0, GradientMode::kOverwrite));
  const kernels::ConstTensorView head = parameters_->gradient_weights().head;
  if (!golden_->config.tie_word_embeddings) {
    for (int64_t i = 0; i < head.dim(1); ++i) EXPECT_EQ(head.Rows(most + 1, most + 2).as<float>()[i], 0);
  }
}

TEST_P(CausalLmDistillationTest, TroubleIsNamed) {
  const Teaching teaching = ByTeacher(testing::OneSequence(golden_->batch, 0));
  EXPECT_THAT(student_->Forward(golden_->batch, teaching),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("slots from the teacher")));
  EXPECT_THAT(teacher_->Forward(golden_->batch, teaching),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("distillation")));
}

INSTANTIATE_TEST_SUITE_P(Models, CausalLmDistillationTest,
                         ::testing::Values("llama_linear_rope_tied", "qwen2", "qwen3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice::engine
