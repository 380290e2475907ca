#include "engine/loss/value_loss.h"

#include <string>

#include "common/testing/status_matchers.h"
#include "engine/loss/testing/golden.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;
using testing::Numbers;

struct Golden {
  nlohmann::json json = testing::ReadGolden("value_losses.json");
  testing::OwnedBatch batch{json.at("batch")};
  std::vector<float> value = Numbers(json.at("batch").at("value"));
  std::vector<float> old_value = Numbers(json.at("batch").at("old_value"));
  std::vector<float> returns = Numbers(json.at("batch").at("returns"));

  ValueLossInputs Inputs() const { return {batch.View(), value, old_value, returns}; }
};

TEST(ValueLossTest, EqualsTheOracleWholeAndSequenceBySequence) {
  const Golden golden;
  BatchTotals totals = CountBatch(golden.batch.View());
  totals.loss_scale_factor = 8;
  ASSERT_EQ(golden.json.at("cases").size(), LossAggregationNames().size());
  for (const auto& c : golden.json.at("cases")) {
    SCOPED_TRACE(c.at("aggregation"));
    const ValueLossOptions options = {.cliprange_value = 0.5,
                                      .aggregation = *ParseLossAggregation(c.at("aggregation").get<std::string>())};
    std::vector<float> d_value(golden.value.size(), 7.0f);
    ASSERT_OK_AND_ASSIGN(const auto whole, ValueLoss(options, golden.Inputs(), totals, d_value));
    EXPECT_NEAR(whole.vf_loss, c.at("loss").get<double>(), testing::Tolerance(c.at("loss")));
    EXPECT_GT(whole.vf_clip_fraction.sum, 0);
    for (size_t t = 0; t < d_value.size(); ++t) {
      const double want = c.at("d_value")[t];
      EXPECT_NEAR(d_value[t], want, testing::Tolerance(want)) << t;
    }
    ValueLossMetrics sum;
    for (const Sequence& sequence : golden.batch.sequences) {
      ValueLossInputs inputs = golden.Inputs();
      inputs.batch.sequences = {&sequence, 1};
      std::vector<float> part(d_value.size());
      ASSERT_OK_AND_ASSIGN(const auto metrics, ValueLoss(options, inputs, totals, part));
      sum += metrics;
      for (int64_t t = sequence.begin; t < sequence.end; ++t) EXPECT_EQ(part[t], d_value[t]);
    }
    EXPECT_NEAR(sum.vf_loss, whole.vf_loss, 1e-12);
    EXPECT_EQ(sum.vf_clip_fraction.sum, whole.vf_clip_fraction.sum);
  }
}

TEST(ValueLossTest, NamesTheWrongArgument) {
  const Golden golden;
  const BatchTotals totals = CountBatch(golden.batch.View());
  std::vector<float> d_value(golden.value.size());
  EXPECT_THAT(ValueLoss({.cliprange_value = 0}, golden.Inputs(), totals, d_value),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cliprange_value")));
  ValueLossInputs inputs = golden.Inputs();
  inputs.returns = inputs.returns.subspan(1);
  EXPECT_THAT(ValueLoss({}, inputs, totals, d_value),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("returns")));
}

}  // namespace
}  // namespace sluice::engine
