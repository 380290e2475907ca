// Our model and optimizer against transformers and torch.optim (tests/golden/model, made by tools/oracle/model.py).
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "engine/model/causal_lm.h"
#include "engine/model/testing/golden_model.h"
#include "engine/model/testing/run_batch.h"
#include "engine/optim/adamw_optimizer.h"

namespace sluice::engine {
namespace {

class ModelParityTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto golden = testing::LoadGoldenModel(GetParam());
    ASSERT_OK(golden);
    golden_ = std::make_unique<testing::GoldenModel>(*std::move(golden));
    auto parameters = testing::LoadGoldenParameters(*golden_, GetParam(), {});
    ASSERT_OK(parameters);
    parameters_ = *std::move(parameters);
    auto model = CausalLm::Create(parameters_.get(), {.token_slots = golden_->batch.token_slots()});
    ASSERT_OK(model);
    model_ = *std::move(model);
  }

  std::unique_ptr<testing::GoldenModel> golden_;
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<CausalLm> model_;
};

TEST_P(ModelParityTest, Logits) {
  ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, model_->Logits(golden_->batch));
  // Sums of 32 terms of order one that cancel to 0.02: both sides' rounding shows at 1.3e-6.
  EXPECT_EQ(testing::Difference(logits, golden_->Expected("logits"), 1e-5, 2e-6), "");
}

TEST_P(ModelParityTest, LossAndEveryGradient) {
  const double scored = static_cast<double>(golden_->batch.scored_tokens());
  ASSERT_OK_AND_ASSIGN(const double loss, testing::ForwardBackwardLoss(*model_, golden_->batch, 1 / scored));
  EXPECT_NEAR(loss, golden_->Expected("loss_sum")[0], 1e-5 * loss);
  ASSERT_OK_AND_ASSIGN(const std::string differences,
                       testing::GradientDifferences(*golden_, *parameters_, {.relative = 1e-5, .absolute = 1e-6}));
  EXPECT_EQ(differences, "");
}

TEST_P(ModelParityTest, LossesOfTenAdamWSteps) {
  const double scored = static_cast<double>(golden_->batch.scored_tokens());
  ASSERT_OK_AND_ASSIGN(const auto optimizer,
                       AdamWOptimizer::Create(parameters_.get(), {.beta1 = 0.9, .beta2 = 0.95, .clip_grad = 1.0}));
  std::vector<float> losses, norms;
  for (int step = 0; step < 10; ++step) {
    ASSERT_OK_AND_ASSIGN(const double loss, testing::ForwardBackwardLoss(*model_, golden_->batch, 1 / scored));
    ASSERT_OK(optimizer->Step(3e-3 * (1 - step / 10.0), 0.1));
    ASSERT_OK_AND_ASSIGN(const OptimizerStepResult result, optimizer->Read());
    losses.push_back(static_cast<float>(loss / scored));
    norms.push_back(static_cast<float>(result.grad_norm));
  }
  EXPECT_EQ(testing::Difference(losses, golden_->Expected("adamw_losses"), 1e-4, 0), "");
  EXPECT_EQ(testing::Difference(norms, golden_->Expected("adamw_grad_norms"), 1e-3, 0), "");
  EXPECT_LT(losses.back(), losses.front());
}

INSTANTIATE_TEST_SUITE_P(Architectures, ModelParityTest, ::testing::ValuesIn(testing::GoldenModelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice::engine
