#include "engine/advantage/rollout_correction.h"

#include <algorithm>
#include <cmath>

#include "common/status_macros.h"

namespace sluice::engine {
namespace {

constexpr double kMaxLogRatio = 20;

double Bounded(double log_ratio) { return std::clamp(log_ratio, -kMaxLogRatio, kMaxLogRatio); }

double Statistic(RejectionStatistic statistic, double log_ratio) {
  const double l = Bounded(log_ratio);
  switch (statistic) {
    case RejectionStatistic::kK1:
      return -l;
    case RejectionStatistic::kK2:
      return l * l / 2;
    case RejectionStatistic::kK3:
      return std::expm1(l) - l;
  }
  __builtin_unreachable();
}

// Written so that a NaN is outside.
bool Inside(const RejectionCriterion& criterion, double value) {
  return value <= criterion.upper && (criterion.statistic != RejectionStatistic::kK1 || value >= criterion.lower);
}

// keep[i] of the sequence's counted tokens.
void Reject(const RejectionCriterion& criterion, std::span<const double> log_ratio, std::vector<uint8_t>& keep) {
  double sum = 0, largest = 0;
  for (size_t i = 0; i < log_ratio.size(); ++i) {
    const double value = Statistic(criterion.statistic, log_ratio[i]);
    if (criterion.scope == RejectionScope::kToken && !Inside(criterion, value)) keep[i] = 0;
    sum += value;
    if (!(value <= largest)) largest = value;
  }
  if (criterion.scope == RejectionScope::kToken) return;
  double value = sum;
  if (criterion.scope == RejectionScope::kSequenceMean) value = sum / static_cast<double>(log_ratio.size());
  if (criterion.scope == RejectionScope::kSequenceMax) value = largest;
  if (!Inside(criterion, value)) std::fill(keep.begin(), keep.end(), uint8_t{0});
}

void CountDifference(double log_ratio, double old_log_prob, double rollout_log_prob,
                     RolloutCorrectionMetrics& metrics) {
  metrics.kl.Add(Statistic(RejectionStatistic::kK1, log_ratio));
  metrics.k3_kl.Add(Statistic(RejectionStatistic::kK3, log_ratio));
  metrics.log_prob_difference.Add(std::abs(log_ratio));
  const double difference = std::abs(std::exp(old_log_prob) - std::exp(rollout_log_prob));
  metrics.probs_diff.Add(difference);
  metrics.probs_diff_max = std::max(metrics.probs_diff_max, difference);
}

// Weights of the sequence's counted tokens.
std::vector<double> Weights(const RolloutCorrectionOptions& options, std::span<const double> log_ratio,
                            RolloutCorrectionMetrics& metrics) {
  double sum = 0;
  for (const double value : log_ratio) sum += value;
  std::vector<double> weights;
  double total = 0;
  for (const double value : log_ratio) {
    const double raw = std::exp(Bounded(options.importance == RolloutImportance::kToken ? value : sum));
    const ImportanceThreshold& threshold = options.threshold;
    const bool outside = raw > threshold.upper || (threshold.lower.has_value() && raw < *threshold.lower);
    double weight = raw;
    if (outside) weight = threshold.lower.has_value() ? 0 : threshold.upper;
    weights.push_back(weight);
    total += weight;
    metrics.weight.Add(weight);
    metrics.weight_squared.Add(weight * weight);
    metrics.weight_outside.Add(outside);
  }
  if (options.importance == RolloutImportance::kToken) {
    metrics.weight_normaliser += {total, static_cast<double>(weights.size())};
  } else {
    metrics.weight_normaliser.Add(total / static_cast<double>(weights.size()));
  }
  return weights;
}

}  // namespace

RolloutCorrectionMetrics& RolloutCorrectionMetrics::operator+=(const RolloutCorrectionMetrics& other) {
  kl += other.kl;
  k3_kl += other.k3_kl;
  log_prob_difference += other.log_prob_difference;
  probs_diff += other.probs_diff;
  probs_diff_max = std::max(probs_diff_max, other.probs_diff_max);
  weight += other.weight;
  weight_squared += other.weight_squared;
  weight_normaliser += other.weight_normaliser;
  weight_outside += other.weight_outside;
  rejected_tokens += other.rejected_tokens;
  rejected_sequences += other.rejected_sequences;
  return *this;
}

absl::StatusOr<RolloutCorrection> CorrectRollout(const RolloutCorrectionOptions& options,
                                                 const RolloutCorrectionInputs& inputs) {
  const TokenBatch& batch = inputs.batch;
  RETURN_IF_ERROR(Validate(batch));
  RETURN_IF_ERROR(CheckLength(batch, inputs.old_log_prob.size(), "old_log_prob"));
  RETURN_IF_ERROR(CheckLength(batch, inputs.rollout_log_prob.size(), "rollout_log_prob"));
  RolloutCorrection result;
  result.mask.assign(batch.tokens, 0);
  const bool weighted = options.importance != RolloutImportance::kNone;
  if (weighted) result.weight.assign(batch.tokens, 0.0f);
  for (const Sequence& sequence : batch.sequences) {
    std::vector<int64_t> tokens;
    std::vector<double> log_ratio;
    for (int64_t token = sequence.begin; token < sequence.end; ++token) {
      if (!batch.Counts(token)) continue;
      const double old_log_prob = inputs.old_log_prob[token], rollout_log_prob = inputs.rollout_log_prob[token];
      tokens.push_back(token);
      log_ratio.push_back(old_log_prob - rollout_log_prob);
      CountDifference(log_ratio.back(), old_log_prob, rollout_log_prob, result.metrics);
    }
    if (tokens.empty()) continue;
    if (weighted) {
      const std::vector<double> weights = Weights(options, log_ratio, result.metrics);
      for (size_t i = 0; i < tokens.size(); ++i) result.weight[tokens[i]] = static_cast<float>(weights[i]);
    }
    std::vector<uint8_t> keep(tokens.size(), 1);
    for (const RejectionCriterion& criterion : options.rejection) Reject(criterion, log_ratio, keep);
    for (size_t i = 0; i < tokens.size(); ++i) {
      result.mask[tokens[i]] = keep[i];
      result.metrics.rejected_tokens.Add(keep[i] == 0);
    }
    result.metrics.rejected_sequences.Add(std::find(keep.begin(), keep.end(), 0) != keep.end());
  }
  return result;
}

void NormaliseWeights(const WeightedSum& normaliser, std::span<float> weight) {
  const double mean = normaliser.Mean();
  if (!(mean > 0)) return;  // all weights are 0
  for (float& value : weight) value = static_cast<float>(value / mean);
}

}  // namespace sluice::engine
