#include "engine/loss/value_loss.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::engine {

absl::StatusOr<ValueLossMetrics> ValueLoss(const ValueLossOptions& options, const ValueLossInputs& inputs,
                                           const BatchTotals& totals, std::span<float> d_value) {
  const TokenBatch& batch = inputs.batch;
  if (!(options.cliprange_value > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cliprange_value: is ", options.cliprange_value, ", must be above 0"));
  }
  RETURN_IF_ERROR(Validate(options.aggregation, totals));
  RETURN_IF_ERROR(Validate(batch));
  RETURN_IF_ERROR(CheckLength(batch, inputs.value.size(), "value"));
  RETURN_IF_ERROR(CheckLength(batch, inputs.old_value.size(), "old_value"));
  RETURN_IF_ERROR(CheckLength(batch, inputs.returns.size(), "returns"));
  RETURN_IF_ERROR(CheckLength(batch, d_value.size(), "d_value"));
  std::fill(d_value.begin(), d_value.end(), 0.0f);

  ValueLossMetrics metrics;
  for (const Sequence& sequence : batch.sequences) {
    const int64_t length = CountedTokens(batch, sequence);
    if (length == 0) continue;
    const double weight = TokenWeight(options.aggregation, totals, length);
    double sum = 0;
    for (int64_t token = sequence.begin; token < sequence.end; ++token) {
      if (!batch.Counts(token)) continue;
      const double value = inputs.value[token], old_value = inputs.old_value[token];
      const double bounded =
          std::clamp(value, old_value - options.cliprange_value, old_value + options.cliprange_value);
      const double error = value - inputs.returns[token];
      const double bounded_error = bounded - inputs.returns[token];
      const bool clipped = bounded_error * bounded_error > error * error;
      sum += 0.5 * (clipped ? bounded_error * bounded_error : error * error);
      d_value[token] = static_cast<float>(clipped ? 0 : weight * error);
      metrics.vf_clip_fraction.Add(clipped);
      metrics.value.Add(value);
    }
    metrics.vf_loss += weight * sum;
  }
  return metrics;
}

}  // namespace sluice::engine
