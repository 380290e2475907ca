#include "engine/advantage/rollout_correction.h"

#include <cmath>
#include <set>
#include <string>

#include "common/testing/status_matchers.h"
#include "engine/loss/testing/golden.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;
using testing::Numbers;
using testing::Tolerance;

class RolloutCorrectionTest : public ::testing::Test {
 protected:
  RolloutCorrectionInputs Inputs() const { return {batch_.View(), old_log_prob_, rollout_log_prob_}; }

  const nlohmann::json golden_ = testing::ReadGolden("rollout_correction.json");
  const testing::OwnedBatch batch_{golden_.at("batch")};
  const std::vector<float> old_log_prob_ = Numbers(golden_.at("batch").at("old_log_prob"));
  const std::vector<float> rollout_log_prob_ = Numbers(golden_.at("batch").at("rollout_log_prob"));
};

TEST_F(RolloutCorrectionTest, WeightsEqualTheOracleWholeAndSequenceBySequence) {
  for (const auto& c : golden_.at("weights")) {
    SCOPED_TRACE(c.at("rollout_is").get<std::string>() + " " + c.at("threshold").get<std::string>());
    ASSERT_OK_AND_ASSIGN(const auto threshold, ParseImportanceThreshold(c.at("threshold").get<std::string>()));
    const RolloutCorrectionOptions options = {
        .importance = *ParseRolloutImportance(c.at("rollout_is").get<std::string>()),
        .threshold = threshold,
        .batch_normalize = c.at("normalise")};
    ASSERT_OK_AND_ASSIGN(auto whole, CorrectRollout(options, Inputs()));
    RolloutCorrectionMetrics sum;
    for (size_t i = batch_.sequences.size(); i-- > 0;) {
      RolloutCorrectionInputs one = Inputs();
      one.batch.sequences = {&batch_.sequences[i], 1};
      ASSERT_OK_AND_ASSIGN(const auto part, CorrectRollout(options, one));
      sum += part.metrics;
      for (int64_t t = batch_.sequences[i].begin; t < batch_.sequences[i].end; ++t) {
        EXPECT_EQ(part.weight[t], whole.weight[t]);
      }
    }
    EXPECT_NEAR(sum.weight_normaliser.Mean(), whole.metrics.weight_normaliser.Mean(), 1e-12);
    EXPECT_EQ(sum.weight_outside.sum, whole.metrics.weight_outside.sum);
    EXPECT_GT(sum.weight_outside.sum, 0);
    if (options.batch_normalize) NormaliseWeights(whole.metrics.weight_normaliser, whole.weight);
    for (size_t t = 0; t < whole.weight.size(); ++t) {
      EXPECT_NEAR(whole.weight[t], c.at("weight")[t].get<double>(), Tolerance(c.at("weight")[t])) << t;
    }
    EXPECT_EQ(whole.mask, batch_.mask);
  }
}

TEST_F(RolloutCorrectionTest, RejectionsEqualTheOracle) {
  std::set<std::string> seen;
  for (const auto& c : golden_.at("rejections")) {
    SCOPED_TRACE(c.at("rollout_rs").get<std::string>() + " " + c.at("threshold").get<std::string>());
    seen.insert(c.at("rollout_rs"));
    RolloutCorrectionOptions options;
    ASSERT_OK_AND_ASSIGN(options.rejection,
                         ParseRejection(c.at("rollout_rs").get<std::string>(), c.at("threshold").get<std::string>()));
    ASSERT_OK_AND_ASSIGN(const auto result, CorrectRollout(options, Inputs()));
    EXPECT_EQ(result.mask, c.at("mask").get<std::vector<uint8_t>>());
    EXPECT_GT(result.metrics.rejected_tokens.sum, 0);
    EXPECT_LT(result.metrics.rejected_tokens.Mean(), 1);
    EXPECT_TRUE(result.weight.empty());
  }
  EXPECT_EQ(seen.size(), RejectionNames().size());
}

TEST_F(RolloutCorrectionTest, SeveralCriteriaMustAllHold) {
  const auto mask = [&](absl::string_view names, absl::string_view thresholds) {
    RolloutCorrectionOptions options;
    auto parsed = ParseRejection(names, thresholds);
    EXPECT_OK(parsed);
    options.rejection = *parsed;
    return CorrectRollout(options, Inputs())->mask;
  };
  const auto both = mask("token_k1, seq_max_k2", "0.7_1.6, 0.3");
  const auto first = mask("token_k1", "0.7_1.6"), second = mask("seq_max_k2", "0.3");
  for (size_t t = 0; t < both.size(); ++t) EXPECT_EQ(both[t], first[t] & second[t]);
  EXPECT_EQ(mask("none", ""), batch_.mask);
}

TEST_F(RolloutCorrectionTest, Metrics) {
  ASSERT_OK_AND_ASSIGN(const auto result, CorrectRollout({}, Inputs()));
  EXPECT_NEAR(result.metrics.kl.Mean(), golden_.at("kl").get<double>(), 1e-6);
  EXPECT_NEAR(result.metrics.k3_kl.Mean(), golden_.at("k3_kl").get<double>(), 1e-6 * golden_.at("k3_kl").get<double>());
  EXPECT_NEAR(result.metrics.probs_diff.Mean(), golden_.at("probs_diff").get<double>(),
              Tolerance(golden_.at("probs_diff")));
}

TEST_F(RolloutCorrectionTest, EqualPoliciesHaveWeightOneExactly) {
  for (const auto importance : {RolloutImportance::kToken, RolloutImportance::kSequence}) {
    ASSERT_OK_AND_ASSIGN(const auto result,
                         CorrectRollout({.importance = importance}, {batch_.View(), old_log_prob_, old_log_prob_}));
    for (size_t t = 0; t < result.weight.size(); ++t) EXPECT_EQ(result.weight[t], batch_.mask[t]);
    EXPECT_EQ(result.metrics.probs_diff_max, 0);
  }
}

TEST_F(RolloutCorrectionTest, AllWeightsZeroStayZero) {
  std::vector<float> weight = {0, 0};
  NormaliseWeights({0, 2}, weight);
  EXPECT_EQ(weight, (std::vector<float>{0, 0}));
}

TEST(RolloutCorrectionOptionsTest, NamesTheWrongKey) {
  const auto wrong_threshold = [](absl::string_view text) {
    EXPECT_THAT(ParseImportanceThreshold(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rollout_is_threshold")));
  };
  for (const char* text : {"", "x", "-1", "0", "2_1", "1_", "nan", "inf"}) wrong_threshold(text);
  const auto wrong_rejection = [](absl::string_view names, absl::string_view thresholds, const char* text) {
    EXPECT_THAT(ParseRejection(names, thresholds), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  wrong_rejection("seq_max_k1", "2", "\"seq_max_k1\" is no criterion");
  wrong_rejection("token_k2", "0.1_2", "one upper bound");
  wrong_rejection("token_k1,token_k2,token_k3", "1,2", "2 thresholds for the 3 criteria");
  wrong_rejection("token_k1", "", "rollout_rs_threshold");
  EXPECT_EQ(ParseRolloutImportance("tokens"), std::nullopt);
}

}  // namespace
}  // namespace sluice::engine
