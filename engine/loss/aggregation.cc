#include "engine/loss/aggregation.h"

#include "absl/strings/str_cat.h"

namespace sluice::engine {
namespace {

constexpr LossAggregationName kNames[] = {
    {LossAggregation::kTokenMean, "token-mean"},
    {LossAggregation::kTokenSum, "token-sum"},
    {LossAggregation::kSeqMeanTokenSum, "seq-mean-token-sum"},
    {LossAggregation::kSeqMeanTokenSumNorm, "seq-mean-token-sum-norm"},
    {LossAggregation::kSeqMeanTokenMean, "seq-mean-token-mean"},
};

}  // namespace

std::span<const LossAggregationName> LossAggregationNames() { return kNames; }

std::optional<LossAggregation> ParseLossAggregation(absl::string_view name) {
  for (const LossAggregationName& row : kNames) {
    if (row.name == name) return row.aggregation;
  }
  return std::nullopt;
}

BatchTotals CountBatch(const TokenBatch& batch) {
  BatchTotals totals;
  for (const Sequence& sequence : batch.sequences) {
    const int64_t counted = CountedTokens(batch, sequence);
    totals.tokens += counted;
    totals.sequences += counted > 0;
  }
  return totals;
}

absl::Status Validate(LossAggregation aggregation, const BatchTotals& totals) {
  if (aggregation == LossAggregation::kSeqMeanTokenSumNorm && !(totals.loss_scale_factor > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("loss_scale_factor: is ", totals.loss_scale_factor,
                                                   ", loss_agg_mode seq-mean-token-sum-norm needs one above 0"));
  }
  return absl::OkStatus();
}

double TokenWeight(LossAggregation aggregation, const BatchTotals& totals, int64_t length) {
  const auto sequences = static_cast<double>(totals.sequences);
  switch (aggregation) {
    case LossAggregation::kTokenMean:
      return 1 / static_cast<double>(totals.tokens);
    case LossAggregation::kTokenSum:
      return 1;
    case LossAggregation::kSeqMeanTokenSum:
      return 1 / sequences;
    case LossAggregation::kSeqMeanTokenSumNorm:
      return 1 / (sequences * totals.loss_scale_factor);
    case LossAggregation::kSeqMeanTokenMean:
      return 1 / (sequences * static_cast<double>(length));
  }
  __builtin_unreachable();
}

double Aggregate(LossAggregation aggregation, const BatchTotals& totals, const TokenBatch& batch,
                 std::span<const float> loss) {
  double total = 0;
  for (const Sequence& sequence : batch.sequences) {
    const int64_t length = CountedTokens(batch, sequence);
    if (length == 0) continue;
    double sum = 0;
    for (int64_t token = sequence.begin; token < sequence.end; ++token) {
      if (batch.Counts(token)) sum += loss[token];
    }
    total += sum * TokenWeight(aggregation, totals, length);
  }
  return total;
}

}  // namespace sluice::engine
