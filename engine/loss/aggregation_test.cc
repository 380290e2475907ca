#include "engine/loss/aggregation.h"

#include <map>
#include <string>

#include "common/testing/status_matchers.h"
#include "engine/loss/testing/golden.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;
using testing::Number;
using testing::Numbers;
using testing::ReadGolden;

// Rows of a padded matrix as one batch; the rows of a micro-batch may be any of them.
struct Rows {
  std::vector<Sequence> sequences;
  std::vector<float> loss;
  std::vector<uint8_t> mask;
  TokenBatch View() const { return {sequences, static_cast<int64_t>(mask.size()), mask}; }
};

Rows Take(const nlohmann::json& golden, const std::vector<size_t>& rows) {
  Rows result;
  for (const size_t row : rows) {
    const auto loss = Numbers(golden.at("loss")[row]);
    const auto begin = static_cast<int64_t>(result.loss.size());
    result.sequences.push_back({begin, begin + static_cast<int64_t>(loss.size()), row});
    result.loss.insert(result.loss.end(), loss.begin(), loss.end());
    for (const auto& value : golden.at("mask")[row]) result.mask.push_back(value.get<uint8_t>());
  }
  return result;
}

// The field's trouble case L03: values that are not finite at masked places, and a row without any counted token.
TEST(AggregationTest, EverySplitGivesTheSame) {
  const nlohmann::json golden = ReadGolden("l03.json");
  const Rows whole = Take(golden, {0, 1, 2, 3, 4});
  BatchTotals totals = CountBatch(whole.View());
  EXPECT_EQ(totals.tokens, golden.at("tokens"));
  EXPECT_EQ(totals.sequences, golden.at("rows_counted"));
  totals.loss_scale_factor = 8;
  for (const auto& [mode, name] : LossAggregationNames()) {
    const std::string key = std::string(name) + (mode == LossAggregation::kSeqMeanTokenSumNorm ? " (scale 8)" : "");
    const double want = golden.at("expected").at(key);
    for (const auto& split : golden.at("splits_that_must_give_the_same")) {
      double total = 0;
      for (const auto& micro_batch : split) {
        const Rows rows = Take(golden, micro_batch.get<std::vector<size_t>>());
        total += Aggregate(mode, totals, rows.View(), rows.loss);
      }
      EXPECT_NEAR(total, want, 1e-6) << name << " " << split;
    }
  }
}

// The field's trouble case L01: a token mean over an update whose micro-batches hold different numbers of tokens.
TEST(AggregationTest, TokenMeanOverUnequalMicroBatches) {
  const nlohmann::json golden = ReadGolden("l01.json");
  size_t first = 0;
  for (const auto& update : golden.at("updates")) {
    const size_t last = std::min(first + 4, golden.at("micro_batches").size());
    BatchTotals totals;
    std::vector<Rows> micro_batches;
    for (size_t i = first; i < last; ++i) {
      const auto& golden_micro_batch = golden.at("micro_batches")[i];
      Rows rows;
      for (size_t t = 0; t < golden_micro_batch.at("labels").size(); ++t) {
        const auto logits = Numbers<double>(golden_micro_batch.at("logits")[t]);
        double sum = 0;
        for (const double logit : logits) sum += std::exp(logit);
        rows.loss.push_back(
            static_cast<float>(std::log(sum) - logits[golden_micro_batch.at("labels")[t].get<size_t>()]));
        rows.mask.push_back(golden_micro_batch.at("mask")[t].get<uint8_t>());
      }
      rows.sequences = {{0, static_cast<int64_t>(rows.loss.size()), i}};
      totals += CountBatch(rows.View());
      micro_batches.push_back(rows);
    }
    EXPECT_EQ(totals.tokens, update.at("tokens"));
    double loss = 0;
    for (const Rows& rows : micro_batches) {
      loss += Aggregate(LossAggregation::kTokenMean, totals, rows.View(), rows.loss);
    }
    EXPECT_NEAR(loss, update.at("loss").get<double>(), 1e-6);
    first = last;
  }
}

TEST(AggregationTest, NamesAreRead) {
  for (const auto& [mode, name] : LossAggregationNames()) EXPECT_EQ(ParseLossAggregation(name), mode);
  EXPECT_EQ(ParseLossAggregation("mean"), std::nullopt);
}

TEST(AggregationTest, NormNeedsItsFactor) {
  EXPECT_THAT(Validate(LossAggregation::kSeqMeanTokenSumNorm, {.tokens = 1, .sequences = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("loss_scale_factor")));
  EXPECT_OK(Validate(LossAggregation::kTokenMean, {.tokens = 1, .sequences = 1}));
}

TEST(TokenBatchTest, OverlapsAndOverrunsAreErrors) {
  const std::vector<Sequence> overlap = {{2, 5, 0}, {0, 3, 1}};
  EXPECT_THAT(Validate(TokenBatch{overlap, 5, {}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[2, 5)")));
  const std::vector<Sequence> overrun = {{0, 6, 7}};
  EXPECT_THAT(Validate(TokenBatch{overrun, 5, {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sample 7")));
  const std::vector<uint8_t> short_mask(4);
  EXPECT_THAT(Validate(TokenBatch{{}, 5, short_mask}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mask has 4 elements")));
}

}  // namespace
}  // namespace sluice::engine
