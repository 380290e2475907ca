#include "engine/loss/policy_loss.h"

#include <algorithm>
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

// Masked places are NaN in every array.
struct Arrays {
  testing::OwnedBatch batch;
  std::vector<float> log_prob, old_log_prob, advantage, entropy, ref_log_prob, importance_weight;
  std::vector<uint8_t> selected;

  explicit Arrays(const nlohmann::json& golden)
      : batch(golden),
        log_prob(Numbers(golden.at("log_prob"))),
        old_log_prob(Numbers(golden.at("old_log_prob"))),
        advantage(Numbers(golden.at("advantage"))),
        entropy(Numbers(golden.at("entropy"))),
        ref_log_prob(Numbers(golden.at("ref_log_prob"))),
        importance_weight(Numbers(golden.at("importance_weight"))),
        selected(golden.at("selected").get<std::vector<uint8_t>>()) {}

  PolicyLossInputs Inputs(bool weighted) const {
    PolicyLossInputs inputs = {batch.View(), log_prob, old_log_prob, advantage, entropy, ref_log_prob, {}, selected};
    if (weighted) inputs.importance_weight = importance_weight;
    return inputs;
  }
};

PolicyLossOptions OptionsOf(const nlohmann::json& c) {
  const auto& o = c.at("options");
  return {.mode = *ParsePolicyLossMode(c.at("mode").get<std::string>()),
          .clip_ratio_low = o.at("clip_ratio_low"),
          .clip_ratio_high = o.at("clip_ratio_high"),
          .clip_ratio_c = o.at("clip_ratio_c"),
          .tau_pos = o.at("tau_pos"),
          .tau_neg = o.at("tau_neg"),
          .dro_beta = o.at("dro_beta"),
          .ppo_kl_coef = o.at("ppo_kl_coef"),
          .entropy_coeff = o.at("entropy_coeff"),
          .use_kl_loss = o.at("use_kl_loss"),
          .kl_loss_coef = o.at("kl_loss_coef"),
          .kl_loss_type = *ParseKlType(o.at("kl_loss_type").get<std::string>()),
          .aggregation = *ParseLossAggregation(o.at("aggregation").get<std::string>())};
}

BatchTotals TotalsOf(const Arrays& arrays) {
  BatchTotals totals = CountBatch(arrays.batch.View());
  totals.loss_scale_factor = 8;
  return totals;
}

struct Result {
  PolicyLossMetrics metrics;
  std::vector<float> d_log_prob, d_entropy;
};

// What is not written stays visible.
Result Compute(const PolicyLossOptions& options, const PolicyLossInputs& inputs, const BatchTotals& totals) {
  Result result;
  result.d_log_prob.assign(inputs.log_prob.size(), 7.0f);
  result.d_entropy.assign(inputs.log_prob.size(), 7.0f);
  auto metrics = PolicyLoss(options, inputs, totals, {result.d_log_prob, result.d_entropy});
  EXPECT_OK(metrics);
  if (metrics.ok()) result.metrics = *metrics;
  return result;
}

class PolicyLossGoldenTest : public ::testing::Test {
 protected:
  template <typename Visit>
  void ForEachCase(Visit visit) {
    std::vector<Arrays> batches;
    for (const auto& batch : golden_.at("batches")) batches.emplace_back(batch);
    for (const auto& c : golden_.at("cases")) {
      SCOPED_TRACE(c.at("mode").get<std::string>() + " " + c.at("options").dump() + " batch " + c.at("batch").dump());
      visit(c, batches.at(c.at("batch").get<size_t>()));
    }
  }
  const nlohmann::json golden_ = testing::ReadGolden("policy_losses.json");
};

TEST_F(PolicyLossGoldenTest, ValuesAndGradientsEqualTheOracle) {
  std::set<std::string> modes;
  ForEachCase([&](const nlohmann::json& c, const Arrays& arrays) {
    modes.insert(c.at("mode"));
    const Result result = Compute(OptionsOf(c), arrays.Inputs(c.at("weighted")), TotalsOf(arrays));
    const auto& want = c.at("expected");
    const auto near = [&](double value, const char* name) {
      EXPECT_NEAR(value, want.at(name).get<double>(), Tolerance(want.at(name))) << name;
    };
    near(result.metrics.loss, "loss");
    near(result.metrics.pg_loss, "pg_loss");
    near(result.metrics.entropy_loss, "entropy_loss");
    near(result.metrics.kl_loss, "kl_loss");
    near(result.metrics.ppo_kl.Mean(), "ppo_kl");
    for (size_t t = 0; t < result.d_log_prob.size(); ++t) {
      const double d_log_prob = want.at("d_log_prob")[t], d_entropy = want.at("d_entropy")[t];
      EXPECT_NEAR(result.d_log_prob[t], d_log_prob, Tolerance(d_log_prob)) << t;
      EXPECT_NEAR(result.d_entropy[t], d_entropy, Tolerance(d_entropy)) << t;
    }
  });
  EXPECT_EQ(modes.size(), PolicyLossModes().size());
}

// Each sequence its own micro-batch, packed in another order behind a gap of padding: the derivatives are the same
// bits.
TEST_F(PolicyLossGoldenTest, SplitOrderAndPackingChangeNothing) {
  ForEachCase([&](const nlohmann::json& c, const Arrays& arrays) {
    const BatchTotals totals = TotalsOf(arrays);
    const Result whole = Compute(OptionsOf(c), arrays.Inputs(c.at("weighted")), totals);
    PolicyLossMetrics sum;
    for (size_t i = arrays.batch.sequences.size(); i-- > 0;) {
      const Sequence source = arrays.batch.sequences[i];
      constexpr int64_t kGap = 3;
      const int64_t length = source.end - source.begin;
      const auto move = [&](const auto& array) {
        std::decay_t<decltype(array)> moved(length + 2 * kGap, static_cast<std::decay_t<decltype(array[0])>>(NAN));
        std::copy(array.begin() + source.begin, array.begin() + source.end, moved.begin() + kGap);
        return moved;
      };
      Arrays part = arrays;
      part.batch.sequences = {{kGap, kGap + length, source.sample}};
      part.batch.mask.assign(length + 2 * kGap, 1);
      std::copy(arrays.batch.mask.begin() + source.begin, arrays.batch.mask.begin() + source.end,
                part.batch.mask.begin() + kGap);
      part.selected.assign(length + 2 * kGap, 1);
      std::copy(arrays.selected.begin() + source.begin, arrays.selected.begin() + source.end,
                part.selected.begin() + kGap);
      for (auto member : {&Arrays::log_prob, &Arrays::old_log_prob, &Arrays::advantage, &Arrays::entropy,
                          &Arrays::ref_log_prob, &Arrays::importance_weight}) {
        part.*member = move(arrays.*member);
      }
      const Result result = Compute(OptionsOf(c), part.Inputs(c.at("weighted")), totals);
      sum += result.metrics;
      for (int64_t t = 0; t < length; ++t) {
        EXPECT_EQ(result.d_log_prob[kGap + t], whole.d_log_prob[source.begin + t]);
        EXPECT_EQ(result.d_entropy[kGap + t], whole.d_entropy[source.begin + t]);
      }
      EXPECT_EQ(result.d_log_prob[0], 0.0f);
      EXPECT_EQ(result.d_log_prob.back(), 0.0f);
    }
    EXPECT_NEAR(sum.loss, whole.metrics.loss, 1e-12 * std::abs(whole.metrics.loss) + 1e-12);
    EXPECT_EQ(sum.clip_fraction.sum, whole.metrics.clip_fraction.sum);
    EXPECT_EQ(sum.clip_fraction_lower.sum, whole.metrics.clip_fraction_lower.sum);
    EXPECT_EQ(sum.max_abs_log_ratio, whole.metrics.max_abs_log_ratio);
    EXPECT_NEAR(sum.entropy.Mean(), whole.metrics.entropy.Mean(), 1e-12);
  });
}

// With log_prob == old_log_prob the ratio is 1 and all modes but dro and the log_prob-weighted ones have value -A.
TEST_F(PolicyLossGoldenTest, OnPolicyTheRatioIsExactlyOne) {
  Arrays arrays(golden_.at("batches")[0]);
  arrays.old_log_prob = arrays.log_prob;
  arrays.advantage.assign(arrays.advantage.size(), -0.75f);
  const BatchTotals totals = TotalsOf(arrays);
  for (const PolicyLossModeInfo& info : PolicyLossModes()) {
    SCOPED_TRACE(info.name);
    const PolicyLossOptions options = {
        .mode = info.mode, .dro_beta = 0.1, .aggregation = LossAggregation::kSeqMeanTokenMean};
    PolicyLossInputs inputs = arrays.Inputs(false);
    const std::vector<uint8_t> none(arrays.selected.size(), 0);
    inputs.selected = none;
    const Result result = Compute(options, inputs, totals);
    EXPECT_EQ(result.metrics.max_abs_log_ratio, 0);
    EXPECT_EQ(result.metrics.ppo_kl.sum, 0);
    EXPECT_EQ(result.metrics.clip_fraction.sum, 0);
    EXPECT_EQ(result.metrics.clip_fraction_lower.sum, 0);
    for (const Sequence& sequence : arrays.batch.sequences) {
      const int64_t length = CountedTokens(inputs.batch, sequence);
      for (int64_t t = sequence.begin; t < sequence.end; ++t) {
        const double want = inputs.batch.Counts(t) ? 0.75 * TokenWeight(options.aggregation, totals, length) : 0.0;
        // sapo's gate has slope 1/4 exactly there, and the 4 of its definition cancels it.
        EXPECT_EQ(result.d_log_prob[t], static_cast<float>(want)) << t;
      }
    }
  }
}

TEST_F(PolicyLossGoldenTest, DualClipAndClipHigherAreCounted) {
  const Arrays arrays(golden_.at("batches")[2]);
  const Result result = Compute({.clip_ratio_high = 0.28}, arrays.Inputs(false), TotalsOf(arrays));
  EXPECT_GT(result.metrics.clip_fraction.sum, 0);
  EXPECT_GT(result.metrics.clip_fraction_lower.sum, 0);
  EXPECT_EQ(result.metrics.clip_fraction.weight, static_cast<double>(TotalsOf(arrays).tokens));
}

// A rejected token (weight 0) leaves nothing behind, whatever its ratio.
TEST_F(PolicyLossGoldenTest, WeightZeroLeavesNothing) {
  Arrays arrays(golden_.at("batches")[0]);
  arrays.importance_weight.assign(arrays.importance_weight.size(), 0.0f);
  for (const PolicyLossModeInfo& info : PolicyLossModes()) {
    const Result result = Compute({.mode = info.mode, .dro_beta = 1}, arrays.Inputs(true), TotalsOf(arrays));
    EXPECT_EQ(result.metrics.pg_loss, 0) << info.name;
    EXPECT_EQ(*std::max_element(result.d_log_prob.begin(), result.d_log_prob.end()), 0.0f) << info.name;
    EXPECT_EQ(*std::min_element(result.d_log_prob.begin(), result.d_log_prob.end()), 0.0f) << info.name;
  }
}

TEST_F(PolicyLossGoldenTest, ANaNAtACountedTokenIsSeen) {
  Arrays arrays(golden_.at("batches")[0]);
  const auto counted = std::find(arrays.batch.mask.begin(), arrays.batch.mask.end(), 1) - arrays.batch.mask.begin();
  arrays.log_prob[counted] = NAN;
  const Result result = Compute({}, arrays.Inputs(false), TotalsOf(arrays));
  EXPECT_TRUE(std::isnan(result.metrics.loss));
  EXPECT_TRUE(std::isnan(result.metrics.max_abs_log_ratio));
}

TEST(PolicyLossTest, NamesTheWrongOptionOrArray) {
  const auto wrong = [](const PolicyLossOptions& options, const char* key) {
    EXPECT_THAT(Validate(options), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(key)));
  };
  wrong({.clip_ratio_low = -0.1}, "clip_ratio_low");
  wrong({.clip_ratio_c = 1.0}, "clip_ratio_c");
  wrong({.mode = PolicyLossMode::kDro}, "dro_beta");
  wrong({.mode = PolicyLossMode::kSapo, .tau_neg = 0}, "tau_neg");
  EXPECT_OK(Validate({.mode = PolicyLossMode::kGspo, .clip_ratio_c = 1.0}));

  const std::vector<Sequence> sequences = {{0, 2, 0}};
  const std::vector<float> two = {-1, -2};
  std::vector<float> d_log_prob(2);
  PolicyLossInputs inputs = {.batch = {sequences, 2, {}}, .log_prob = two, .advantage = two};
  const BatchTotals totals = CountBatch(inputs.batch);
  const auto missing = [&](const PolicyLossOptions& options, const char* name) {
    EXPECT_THAT(PolicyLoss(options, inputs, totals, {d_log_prob, {}}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  };
  EXPECT_OK(PolicyLoss({.mode = PolicyLossMode::kGpg}, inputs, totals, {d_log_prob, {}}));
  missing({}, "old_log_prob has 0 elements");
  inputs.old_log_prob = two;
  missing({.entropy_coeff = 0.1}, "entropy");
  missing({.use_kl_loss = true}, "ref_log_prob");
  missing({.mode = PolicyLossMode::kKlCov}, "selected");
  missing({.aggregation = LossAggregation::kSeqMeanTokenSumNorm}, "loss_scale_factor");
}

TEST(PolicyLossTest, NamesAreRead) {
  for (const PolicyLossModeInfo& info : PolicyLossModes()) {
    EXPECT_EQ(ParsePolicyLossMode(info.name), info.mode);
    EXPECT_EQ(InfoOf(info.mode).name, info.name);
  }
  EXPECT_EQ(ParsePolicyLossMode("ppo"), std::nullopt);
}

}  // namespace
}  // namespace sluice::engine
