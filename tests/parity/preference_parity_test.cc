// One step of preference tuning against trl on the same model and pairs (tests/golden/preference, made by
// tools/oracle/preference_model.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/file_system.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "engine/loss/preference_loss.h"
#include "engine/model/causal_lm.h"
#include "engine/model/testing/golden_model.h"
#include "engine/roles/sequence_groups.h"

namespace sluice::engine {
namespace {

constexpr char kModel[] = "llama_linear_rope_tied";
constexpr int64_t kPairs = 4;

class PreferenceParityTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(testing::GoldenModel model, testing::LoadGoldenModel(kModel));
    ASSERT_OK_AND_ASSIGN(parameters_, testing::LoadGoldenParameters(model, kModel, {}));
    ASSERT_OK_AND_ASSIGN(reference_, testing::LoadGoldenParameters(model, kModel, {.gradients = false}));
    float* weights = reference_->values().as<float>();
    for (int64_t i = 0; i < reference_->values().elements(); ++i) weights[i] *= 0.5f;
    ASSERT_OK_AND_ASSIGN(
        SafetensorsFile expected,
        SafetensorsFile::Open(PosixFileSystem(), "tests/golden/preference/" + GetParam() + ".safetensors"));
    golden_ = std::make_unique<testing::GoldenModel>(testing::GoldenModel{model.config, std::move(expected), {}});
    ReadRows("chosen", &chosen_);
    ReadRows("rejected", &rejected_);
    for (size_t i = 0; i < chosen_.size(); ++i) {
      groups_.push_back({{&chosen_[i], &rejected_[i]}, static_cast<int64_t>(i)});
    }
  }

  void ReadRows(const std::string& side, std::vector<EncodedRow>* rows) {
    const std::vector<int32_t> ids = golden_->ExpectedInts(side + "_ids");
    const std::vector<int32_t> prompts = golden_->ExpectedInts("prompt_lengths");
    auto begin = ids.begin();
    for (const int32_t length : golden_->ExpectedInts(side + "_lengths")) {
      EncodedRow& row = rows->emplace_back();
      row.ids.assign(begin, begin + length);
      row.mask.assign(row.ids.size(), 1);
      std::fill_n(row.mask.begin(), prompts[rows->size() - 1], 0);
      begin += length;
    }
  }

  // The loss of all pairs in micro-batches of `token_slots`; its gradient is left in the parameters.
  absl::StatusOr<double> Run(int64_t token_slots) {
    const PreferenceOptions options = {.type = *ParsePreferenceLoss(GetParam()),
                                       .beta = golden_->Expected("beta")[0],
                                       .simpo_gamma = golden_->Expected("simpo_gamma")[0]};
    ASSIGN_OR_RETURN(const auto model,
                     CausalLm::Create(parameters_.get(), {.token_slots = token_slots, .token_losses = true}));
    ASSIGN_OR_RETURN(
        const auto reference,
        CausalLm::Create(reference_.get(), {.token_slots = token_slots, .backward = false, .token_losses = true}));
    ASSIGN_OR_RETURN(const BatchPlan plan, PlanGroups(groups_, 1, token_slots));
    double sum = 0;
    GradientMode mode = GradientMode::kOverwrite;
    for (const std::vector<int32_t>& micro_batch : plan.ranks[0]) {
      const PackedGroups packed = PackGroups(groups_, micro_batch, token_slots);
      ASSIGN_OR_RETURN(const TokenScores ref_scores, reference->Score(packed.batch, {}));
      const std::vector<PreferencePair> pairs = PairsOf(packed);
      const auto loss = [&](const TokenScores& scores) -> absl::StatusOr<TokenGradients> {
        TokenGradients gradients;
        gradients.d_log_prob.resize(scores.log_prob.size());
        ASSIGN_OR_RETURN(const PreferenceMetrics metrics,
                         PreferenceLoss(options,
                                        {.batch = packed.tokens(),
                                         .pairs = pairs,
                                         .log_prob = scores.log_prob,
                                         .ref_log_prob = ref_scores.log_prob},
                                        {.pairs = kPairs, .chosen_tokens = 0}, gradients.d_log_prob));
        sum += metrics.loss;
        return gradients;
      };
      RETURN_IF_ERROR(model->ForwardBackward(packed.batch, TokenScoring{}, loss, mode));
      mode = GradientMode::kAccumulate;
    }
    return sum;
  }

  std::unique_ptr<testing::GoldenModel> golden_;
  std::unique_ptr<Parameters> parameters_, reference_;
  std::vector<EncodedRow> chosen_, rejected_;
  std::vector<SequenceGroup> groups_;
};

TEST_P(PreferenceParityTest, LossAndEveryGradientAreTrls) {
  ASSERT_EQ(groups_.size(), static_cast<size_t>(kPairs));
  const double expected = golden_->Expected("loss")[0];
  for (const int64_t token_slots : {24, 40, 100}) {
    ASSERT_OK_AND_ASSIGN(const double loss, Run(token_slots));
    EXPECT_NEAR(loss, expected, 1e-5 * expected) << token_slots;
    ASSERT_OK_AND_ASSIGN(const std::string differences,
                         testing::GradientDifferences(*golden_, *parameters_, {.relative = 1e-5, .of_largest = 1e-5}));
    EXPECT_EQ(differences, "") << token_slots << " slots";
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, PreferenceParityTest, ::testing::Values("sigmoid", "ipo", "simpo"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice::engine
