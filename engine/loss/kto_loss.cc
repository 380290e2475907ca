#include "engine/loss/kto_loss.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/loss/logistic.h"

namespace sluice::engine {
namespace {

absl::Status Check(const KtoInputs& inputs) {
  RETURN_IF_ERROR(Validate(inputs.batch));
  if (inputs.desirable.size() != inputs.batch.sequences.size()) {
    return absl::InvalidArgumentError(absl::StrCat("desirable has ", inputs.desirable.size(),
                                                   " elements, the batch has ", inputs.batch.sequences.size(),
                                                   " sequences"));
  }
  RETURN_IF_ERROR(CheckLength(inputs.batch, inputs.log_prob.size(), "log_prob"));
  return CheckLength(inputs.batch, inputs.ref_log_prob.size(), "ref_log_prob");
}

// Calls visit(index, r) for the responses with counted tokens.
template <typename Visit>
void VisitLogRatios(const KtoInputs& inputs, Visit visit) {
  for (size_t i = 0; i < inputs.batch.sequences.size(); ++i) {
    const Sequence& sequence = inputs.batch.sequences[i];
    double log_ratio = 0;
    bool counted = false;
    for (int64_t token = sequence.begin; token < sequence.end; ++token) {
      if (!inputs.batch.Counts(token)) continue;
      counted = true;
      log_ratio += static_cast<double>(inputs.log_prob[token]) - inputs.ref_log_prob[token];
    }
    if (counted) visit(i, log_ratio);
  }
}

}  // namespace

absl::Status Validate(const KtoOptions& options) {
  if (!(options.beta > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("beta: is ", options.beta, ", must be above 0"));
  }
  if (!(options.desirable_weight >= 0 && options.undesirable_weight >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("desirable_weight, undesirable_weight: are ",
                                                   options.desirable_weight, " and ", options.undesirable_weight,
                                                   ", must be 0 or more"));
  }
  return absl::OkStatus();
}

absl::StatusOr<KtoLogRatios> LogRatios(const KtoInputs& inputs) {
  RETURN_IF_ERROR(Check(inputs));
  KtoLogRatios ratios;
  VisitLogRatios(inputs, [&](size_t i, double log_ratio) {
    (inputs.desirable[i] ? ratios.desirable : ratios.undesirable).Add(log_ratio);
  });
  return ratios;
}

KtoReferencePoint UnpairedReferencePoint(const KtoLogRatios& mismatched) {
  WeightedSum all = mismatched.desirable;
  all += mismatched.undesirable;
  const double z = std::max(0.0, all.Mean());
  return {z, z};
}

KtoReferencePoint PairedReferencePoint(const KtoLogRatios& mini_batch) {
  return {.desirable = std::max(0.0, mini_batch.undesirable.Mean()),
          .undesirable = std::max(0.0, mini_batch.desirable.Mean())};
}

absl::StatusOr<KtoMetrics> KtoLoss(const KtoOptions& options, const KtoInputs& inputs, const KtoReferencePoint& point,
                                   int64_t responses, std::span<float> d_log_prob) {
  RETURN_IF_ERROR(Validate(options));
  RETURN_IF_ERROR(Check(inputs));
  RETURN_IF_ERROR(CheckLength(inputs.batch, d_log_prob.size(), "d_log_prob"));
  std::fill(d_log_prob.begin(), d_log_prob.end(), 0.0f);
  KtoMetrics metrics;
  VisitLogRatios(inputs, [&](size_t i, double log_ratio) {
    const bool desirable = inputs.desirable[i] != 0;
    const double sign = desirable ? 1 : -1;
    const double z = desirable ? point.desirable : point.undesirable;
    const double weight =
        (desirable ? options.desirable_weight : options.undesirable_weight) / static_cast<double>(responses);
    const double gate = Sigmoid(-sign * options.beta * (log_ratio - z));  // 1 - s(beta (r - z)) for a desirable one
    metrics.loss += weight * gate;
    const double derivative = -weight * sign * options.beta * gate * (1 - gate);
    (desirable ? metrics.desirable_reward : metrics.undesirable_reward).Add(options.beta * log_ratio);
    const Sequence& sequence = inputs.batch.sequences[i];
    for (int64_t token = sequence.begin; token < sequence.end; ++token) {
      if (inputs.batch.Counts(token)) d_log_prob[token] = static_cast<float>(derivative);
    }
  });
  return metrics;
}

}  // namespace sluice::engine
