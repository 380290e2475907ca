#include "engine/loss/distillation_loss.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

constexpr DistillationLossName kNames[] = {{"forward_kl", DistillationLossType::kForwardKl},
                                           {"reverse_kl", DistillationLossType::kReverseKl}};

// Single precision log-probabilities that sum to 1 leave a rest of about this size, of either sign.
constexpr double kNoRest = 1e-6;

absl::Status CheckListed(const TokenBatch& batch, int64_t listed, size_t size, absl::string_view array) {
  if (size == static_cast<size_t>(batch.tokens * listed)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(array, " has ", size, " elements, the batch has ", batch.tokens, " tokens of ", listed));
}

struct Position {
  double value = 0;
  double teacher_mass = 0;
  double student_mass = 0;
};

// Writes the derivative of the position's value by each log_prob, times `weight`.
Position OnePosition(const ListedDistillationOptions& options, std::span<const float> log_q,
                     std::span<const float> log_p, double weight, std::span<float> d_log_prob) {
  const bool forward = options.type == DistillationLossType::kForwardKl;
  Position position;
  for (size_t k = 0; k < log_q.size(); ++k) {
    if (std::isinf(log_p[k])) continue;
    const double p = std::exp(static_cast<double>(log_p[k])), q = std::exp(static_cast<double>(log_q[k]));
    const double difference = static_cast<double>(log_p[k]) - log_q[k];
    position.teacher_mass += p;
    position.student_mass += q;
    position.value += forward ? p * difference : -q * difference;
  }
  const double p0 = std::max(1 - position.teacher_mass, kNoRest);
  const double q0 = std::max(1 - position.student_mass, kNoRest);
  const bool rest = options.rest && std::max(p0, q0) > kNoRest;
  if (rest) position.value += forward ? p0 * std::log(p0 / q0) : q0 * std::log(q0 / p0);
  // d rest / d q0; a rest at its floor does not move.
  double d_rest = 0;
  if (rest && q0 > kNoRest) d_rest = forward ? -p0 / q0 : std::log(q0 / p0) + 1;
  for (size_t k = 0; k < log_q.size(); ++k) {
    if (std::isinf(log_p[k])) {
      d_log_prob[k] = 0;
      continue;
    }
    const double p = std::exp(static_cast<double>(log_p[k])), q = std::exp(static_cast<double>(log_q[k]));
    const double own = forward ? -p : q * (static_cast<double>(log_q[k]) - log_p[k] + 1);
    d_log_prob[k] = static_cast<float>(weight * (own - q * d_rest));
  }
  return position;
}

}  // namespace

std::span<const DistillationLossName> DistillationLossNames() { return kNames; }

std::optional<DistillationLossType> ParseDistillationLoss(absl::string_view name) {
  for (const DistillationLossName& row : kNames) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

absl::StatusOr<DistillationMetrics> SampledDistillation(KlType type, LossAggregation aggregation,
                                                        const SampledDistillationInputs& inputs,
                                                        const BatchTotals& totals, std::span<float> d_log_prob) {
  const TokenBatch& batch = inputs.batch;
  RETURN_IF_ERROR(Validate(aggregation, totals));
  RETURN_IF_ERROR(Validate(batch));
  RETURN_IF_ERROR(CheckLength(batch, inputs.log_prob.size(), "log_prob"));
  RETURN_IF_ERROR(CheckLength(batch, inputs.teacher_log_prob.size(), "teacher_log_prob"));
  RETURN_IF_ERROR(CheckLength(batch, d_log_prob.size(), "d_log_prob"));
  std::fill(d_log_prob.begin(), d_log_prob.end(), 0.0f);
  DistillationMetrics metrics;
  for (const Sequence& sequence : batch.sequences) {
    const int64_t length = CountedTokens(batch, sequence);
    if (length == 0) continue;
    const double weight = TokenWeight(aggregation, totals, length);
    for (int64_t token = sequence.begin; token < sequence.end; ++token) {
      if (!batch.Counts(token)) continue;
      const KlTerm term = EstimateKl(type, inputs.log_prob[token], inputs.teacher_log_prob[token]);
      metrics.loss += weight * term.value;
      metrics.kl.Add(term.value);
      d_log_prob[token] = static_cast<float>(weight * term.d_log_prob);
    }
  }
  return metrics;
}

absl::StatusOr<DistillationMetrics> ListedDistillation(const ListedDistillationOptions& options,
                                                       const ListedDistillationInputs& inputs,
                                                       const BatchTotals& totals, std::span<float> d_log_prob) {
  const TokenBatch& batch = inputs.batch;
  if (options.type == DistillationLossType::kReverseKl && !options.rest) {
    return absl::InvalidArgumentError("rest: reverse_kl needs the term of the tokens that are not listed");
  }
  if (inputs.listed < 1) return absl::InvalidArgumentError("listed: must be 1 or more");
  RETURN_IF_ERROR(Validate(options.aggregation, totals));
  RETURN_IF_ERROR(Validate(batch));
  RETURN_IF_ERROR(CheckListed(batch, inputs.listed, inputs.log_prob.size(), "log_prob"));
  RETURN_IF_ERROR(CheckListed(batch, inputs.listed, inputs.teacher_log_prob.size(), "teacher_log_prob"));
  RETURN_IF_ERROR(CheckListed(batch, inputs.listed, d_log_prob.size(), "d_log_prob"));
  std::fill(d_log_prob.begin(), d_log_prob.end(), 0.0f);
  DistillationMetrics metrics;
  for (const Sequence& sequence : batch.sequences) {
    const int64_t length = CountedTokens(batch, sequence);
    if (length == 0) continue;
    const double weight = TokenWeight(options.aggregation, totals, length);
    for (int64_t token = sequence.begin; token < sequence.end; ++token) {
      if (!batch.Counts(token)) continue;
      const auto first = static_cast<size_t>(token * inputs.listed), count = static_cast<size_t>(inputs.listed);
      const Position position =
          OnePosition(options, inputs.log_prob.subspan(first, count), inputs.teacher_log_prob.subspan(first, count),
                      weight, d_log_prob.subspan(first, count));
      metrics.loss += weight * position.value;
      metrics.kl.Add(position.value);
      metrics.teacher_mass.Add(position.teacher_mass);
      metrics.student_mass.Add(position.student_mass);
    }
  }
  return metrics;
}

}  // namespace sluice::engine
