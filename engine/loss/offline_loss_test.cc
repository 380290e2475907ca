#include <algorithm>
#include <set>
#include <string>

#include "common/testing/status_matchers.h"
#include "engine/loss/aggregation.h"
#include "engine/loss/kto_loss.h"
#include "engine/loss/preference_loss.h"
#include "engine/loss/reward_model_loss.h"
#include "engine/loss/testing/golden.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;
using testing::Numbers;
using testing::Tolerance;

void ExpectNear(const std::vector<float>& got, const nlohmann::json& want, double extra = 0) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i].get<double>(), Tolerance(want[i]) + extra) << i;
  }
}

std::vector<PreferencePair> Pairs(const nlohmann::json& golden) {
  std::vector<PreferencePair> pairs;
  for (const auto& pair : golden) pairs.push_back({pair[0], pair[1]});
  return pairs;
}

// The batch, with NaN at masked places.
struct Arrays {
  testing::OwnedBatch batch;
  std::vector<float> log_prob, ref_log_prob;

  explicit Arrays(const nlohmann::json& golden)
      : batch(golden), log_prob(Numbers(golden.at("log_prob"))), ref_log_prob(Numbers(golden.at("ref_log_prob"))) {}
};

class PreferenceLossTest : public ::testing::Test {
 protected:
  static PreferenceOptions OptionsOf(const nlohmann::json& c) {
    const auto& o = c.at("options");
    return {.type = *ParsePreferenceLoss(c.at("type").get<std::string>()),
            .beta = o.at("beta"),
            .label_smoothing = o.at("label_smoothing"),
            .simpo_gamma = o.at("simpo_gamma")};
  }

  const nlohmann::json golden_ = testing::ReadGolden("preferences.json");
  const nlohmann::json trl_ = testing::ReadGolden("trl.json");
  const Arrays arrays_{golden_.at("batch")};
  const std::vector<PreferencePair> pairs_ = Pairs(golden_.at("pairs"));
  const PreferenceTotals totals_ = CountPairs(arrays_.batch.View(), pairs_);
};

TEST_F(PreferenceLossTest, EqualsTheOracleAndTrl) {
  std::set<PreferenceLossType> seen;
  EXPECT_EQ(totals_.pairs, 4);
  for (size_t i = 0; i < golden_.at("cases").size(); ++i) {
    const auto& c = golden_.at("cases")[i];
    SCOPED_TRACE(c.at("type"));
    const PreferenceOptions options = OptionsOf(c);
    seen.insert(options.type);
    std::vector<float> d_log_prob(arrays_.log_prob.size(), 7.0f);
    ASSERT_OK_AND_ASSIGN(const auto metrics,
                         PreferenceLoss(options, {arrays_.batch.View(), pairs_, arrays_.log_prob, arrays_.ref_log_prob},
                                        totals_, d_log_prob));
    EXPECT_NEAR(metrics.loss, c.at("loss").get<double>(), Tolerance(c.at("loss")));
    EXPECT_EQ(metrics.pairs_left_out, 1);
    EXPECT_EQ(metrics.accuracy.weight, 4);
    EXPECT_NEAR(metrics.margin.Mean(), metrics.chosen_reward.Mean() - metrics.rejected_reward.Mean(), 1e-12);
    ExpectNear(d_log_prob, c.at("d_log_prob"));
    const auto& trl = trl_.at("preferences")[i];
    if (trl.is_null()) continue;
    EXPECT_NEAR(metrics.loss, trl.at("loss").get<double>(), Tolerance(trl.at("loss")));
    // trl takes orpo's odds in single precision.
    ExpectNear(d_log_prob, trl.at("gradient"), options.type == PreferenceLossType::kOrpo ? 2e-8 : 0);
  }
  EXPECT_EQ(seen.size(), 5u);
}

TEST_F(PreferenceLossTest, MicroBatchesAndOrderChangeNothing) {
  for (const auto& c : golden_.at("cases")) {
    SCOPED_TRACE(c.at("type"));
    const PreferenceOptions options = OptionsOf(c);
    PreferenceInputs inputs = {arrays_.batch.View(), pairs_, arrays_.log_prob, arrays_.ref_log_prob};
    std::vector<float> whole(arrays_.log_prob.size()), sum(arrays_.log_prob.size(), 0.0f);
    ASSERT_OK_AND_ASSIGN(const auto want, PreferenceLoss(options, inputs, totals_, whole));
    PreferenceMetrics got;
    for (size_t i = pairs_.size(); i-- > 0;) {
      std::vector<float> part(whole.size());
      inputs.pairs = {&pairs_[i], 1};
      ASSERT_OK_AND_ASSIGN(const auto metrics, PreferenceLoss(options, inputs, totals_, part));
      got += metrics;
      for (size_t t = 0; t < part.size(); ++t) sum[t] += part[t];
    }
    EXPECT_EQ(sum, whole);
    EXPECT_NEAR(got.loss, want.loss, 1e-12);
    EXPECT_EQ(got.pairs_left_out, want.pairs_left_out);
  }
}

TEST_F(PreferenceLossTest, LargeMarginsNeitherOverflowNorVanishWrongly) {
  const std::vector<Sequence> sequences = {{0, 1, 0}, {1, 2, 1}};
  const std::vector<PreferencePair> pairs = {{0, 1}};
  const std::vector<float> ref = {-1.0f, -1.0f};
  for (const float margin : {-2000.0f, 2000.0f}) {
    const std::vector<float> log_prob = {-1.0f, -1.0f - margin};
    std::vector<float> d_log_prob(2);
    ASSERT_OK_AND_ASSIGN(const auto metrics, PreferenceLoss({.beta = 1}, {{sequences, 2, {}}, pairs, log_prob, ref},
                                                            {.pairs = 1, .chosen_tokens = 1}, d_log_prob));
    EXPECT_NEAR(metrics.loss, margin < 0 ? 2000 : 0, 1e-9);
    EXPECT_FLOAT_EQ(d_log_prob[0], margin < 0 ? -1 : 0);
  }
}

TEST_F(PreferenceLossTest, NamesTheWrongArgument) {
  std::vector<float> d_log_prob(arrays_.log_prob.size());
  const auto wrong = [&](const PreferenceOptions& options, const PreferenceInputs& inputs, const char* name) {
    EXPECT_THAT(PreferenceLoss(options, inputs, totals_, d_log_prob),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  };
  const PreferenceInputs inputs = {arrays_.batch.View(), pairs_, arrays_.log_prob, arrays_.ref_log_prob};
  wrong({.beta = 0}, inputs, "beta");
  wrong({.label_smoothing = 0.5}, inputs, "label_smoothing");
  wrong({}, {inputs.batch, pairs_, arrays_.log_prob, {}}, "ref_log_prob");
  const std::vector<PreferencePair> outside = {{0, 10}};
  wrong({}, {inputs.batch, outside, arrays_.log_prob, arrays_.ref_log_prob}, "(0, 10)");
  EXPECT_OK(PreferenceLoss({.type = PreferenceLossType::kSimpo}, {inputs.batch, pairs_, arrays_.log_prob, {}}, totals_,
                           d_log_prob));
}

class KtoLossTest : public ::testing::Test {
 protected:
  KtoInputs Inputs() const { return {arrays_.batch.View(), desirable_, arrays_.log_prob, arrays_.ref_log_prob}; }

  const nlohmann::json golden_ = testing::ReadGolden("kto.json");
  const nlohmann::json trl_ = testing::ReadGolden("trl.json");
  const Arrays arrays_{golden_.at("batch")};
  const std::vector<uint8_t> desirable_ = golden_.at("desirable").get<std::vector<uint8_t>>();
};

TEST_F(KtoLossTest, EqualsTheOracleAndTrlWholeAndOneByOne) {
  const int64_t responses = CountBatch(arrays_.batch.View()).sequences;
  for (size_t i = 0; i < golden_.at("cases").size(); ++i) {
    const auto& c = golden_.at("cases")[i];
    const KtoOptions options = {.beta = c.at("options").at("beta"),
                                .desirable_weight = c.at("options").at("desirable_weight"),
                                .undesirable_weight = c.at("options").at("undesirable_weight")};
    const KtoReferencePoint point = {c.at("z_desirable"), c.at("z_undesirable")};
    std::vector<float> d_log_prob(arrays_.log_prob.size(), 7.0f);
    ASSERT_OK_AND_ASSIGN(const auto metrics, KtoLoss(options, Inputs(), point, responses, d_log_prob));
    EXPECT_NEAR(metrics.loss, c.at("loss").get<double>(), Tolerance(c.at("loss")));
    ExpectNear(d_log_prob, c.at("d_log_prob"));
    const auto& trl = trl_.at("kto")[i];
    if (!trl.is_null()) {
      EXPECT_NEAR(metrics.loss, trl.at("loss").get<double>(), Tolerance(trl.at("loss")));
      ExpectNear(d_log_prob, trl.at("gradient"));
    }
    KtoMetrics sum;
    for (size_t s = arrays_.batch.sequences.size(); s-- > 0;) {
      KtoInputs one = Inputs();
      one.batch.sequences = one.batch.sequences.subspan(s, 1);
      one.desirable = one.desirable.subspan(s, 1);
      std::vector<float> part(d_log_prob.size());
      ASSERT_OK_AND_ASSIGN(const auto part_metrics, KtoLoss(options, one, point, responses, part));
      sum += part_metrics;
      const Sequence& sequence = one.batch.sequences[0];
      for (int64_t t = sequence.begin; t < sequence.end; ++t) EXPECT_EQ(part[t], d_log_prob[t]);
    }
    EXPECT_NEAR(sum.loss, metrics.loss, 1e-12);
  }
}

TEST_F(KtoLossTest, ReferencePoints) {
  ASSERT_OK_AND_ASSIGN(const KtoLogRatios ratios, LogRatios(Inputs()));
  const double good = golden_.at("mean_of_desirable"), bad = golden_.at("mean_of_undesirable");
  EXPECT_NEAR(ratios.desirable.Mean(), good, 1e-6);
  EXPECT_NEAR(ratios.undesirable.Mean(), bad, 1e-6);
  const KtoReferencePoint paired = PairedReferencePoint(ratios);
  EXPECT_NEAR(paired.desirable, std::max(0.0, bad), 1e-6);
  EXPECT_NEAR(paired.undesirable, std::max(0.0, good), 1e-6);
  const KtoReferencePoint unpaired = UnpairedReferencePoint(ratios);
  EXPECT_NEAR(unpaired.desirable, std::max(0.0, golden_.at("mean").get<double>()), 1e-6);
  EXPECT_EQ(unpaired.desirable, unpaired.undesirable);
}

TEST_F(KtoLossTest, NamesTheWrongArgument) {
  std::vector<float> d_log_prob(arrays_.log_prob.size());
  EXPECT_THAT(KtoLoss({.beta = -1}, Inputs(), {}, 9, d_log_prob),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("beta")));
  KtoInputs inputs = Inputs();
  inputs.desirable = inputs.desirable.subspan(1);
  EXPECT_THAT(KtoLoss({}, inputs, {}, 9, d_log_prob),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("desirable has 9 elements")));
}

TEST(RewardModelLossTest, EqualsTheOracleAndTrlWholeAndPairByPair) {
  const nlohmann::json golden = testing::ReadGolden("reward_model.json"), trl = testing::ReadGolden("trl.json");
  const auto reward = Numbers(golden.at("reward")), margin = Numbers(golden.at("margin"));
  const auto pairs = Pairs(golden.at("pairs"));
  for (size_t i = 0; i < golden.at("cases").size(); ++i) {
    const auto& c = golden.at("cases")[i];
    const RewardModelOptions options = {.center_rewards_coefficient = c.at("center_rewards_coefficient")};
    RewardModelInputs inputs = {pairs, reward, {}};
    if (c.at("with_margin")) inputs.margin = margin;
    std::vector<float> d_reward(reward.size(), 7.0f), sum(reward.size(), 0.0f);
    ASSERT_OK_AND_ASSIGN(const auto metrics, RewardModelLoss(options, inputs, 4, d_reward));
    EXPECT_NEAR(metrics.loss, c.at("loss").get<double>(), Tolerance(c.at("loss")));
    ExpectNear(d_reward, c.at("d_reward"));
    EXPECT_NEAR(metrics.loss, trl.at("reward_model")[i].at("loss").get<double>(), Tolerance(metrics.loss));
    ExpectNear(d_reward, trl.at("reward_model")[i].at("gradient"));
    double loss = 0;
    for (size_t p = 0; p < pairs.size(); ++p) {
      RewardModelInputs one = {
          {&pairs[p], 1}, reward, inputs.margin.empty() ? inputs.margin : inputs.margin.subspan(p, 1)};
      std::vector<float> part(reward.size());
      ASSERT_OK_AND_ASSIGN(const auto part_metrics, RewardModelLoss(options, one, 4, part));
      loss += part_metrics.loss;
      for (size_t s = 0; s < part.size(); ++s) sum[s] += part[s];
    }
    EXPECT_NEAR(loss, metrics.loss, 1e-12);
    EXPECT_EQ(sum, d_reward);
  }
}

TEST(RewardModelLossTest, NamesTheWrongArgument) {
  const std::vector<float> reward = {1, 2};
  const std::vector<PreferencePair> pairs = {{0, 2}};
  std::vector<float> d_reward(2);
  EXPECT_THAT(RewardModelLoss({}, {pairs, reward, {}}, 1, d_reward),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("(0, 2)")));
  EXPECT_THAT(RewardModelLoss({.center_rewards_coefficient = -1}, {{}, reward, {}}, 1, d_reward),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("center_rewards_coefficient")));
  EXPECT_THAT(RewardModelLoss({}, {{}, reward, reward}, 1, d_reward),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("margin has 2 elements")));
}

}  // namespace
}  // namespace sluice::engine
