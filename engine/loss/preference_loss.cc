#include "engine/loss/preference_loss.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/loss/logistic.h"

namespace sluice::engine {
namespace {

constexpr PreferenceLossInfo kLosses[] = {
    {"dpo", PreferenceLossType::kSigmoid, true},  {"sigmoid", PreferenceLossType::kSigmoid, true},
    {"hinge", PreferenceLossType::kHinge, true},  {"ipo", PreferenceLossType::kIpo, true},
    {"simpo", PreferenceLossType::kSimpo, false}, {"orpo", PreferenceLossType::kOrpo, false},
};

bool NeedsReference(PreferenceLossType type) {
  return std::any_of(std::begin(kLosses), std::end(kLosses),
                     [&](const PreferenceLossInfo& row) { return row.type == type && row.needs_reference; });
}

struct Response {
  double log_prob = 0;  // sums over the counted tokens
  double ref_log_prob = 0;
  double length = 0;
};

// The derivatives are by the two sums of log_prob.
struct PairLoss {
  double value = 0;
  double d_chosen = 0;
  double d_rejected = 0;
  double chosen_reward = 0;
  double rejected_reward = 0;
};

struct Smoothed {
  double value;
  double derivative;
};

Smoothed SmoothedLogLoss(double logit, double smoothing) {
  return {-(1 - smoothing) * LogSigmoid(logit) - smoothing * LogSigmoid(-logit),
          -(1 - smoothing) * Sigmoid(-logit) + smoothing * Sigmoid(logit)};
}

PairLoss LossOf(const PreferenceOptions& options, const Response& chosen, const Response& rejected) {
  const double beta = options.beta;
  const bool per_token = options.type == PreferenceLossType::kIpo || options.type == PreferenceLossType::kSimpo ||
                         options.type == PreferenceLossType::kOrpo;
  const double chosen_scale = per_token ? 1 / chosen.length : 1;
  const double rejected_scale = per_token ? 1 / rejected.length : 1;
  // What is compared; without a reference its log-probabilities are 0.
  const double a = (chosen.log_prob - chosen.ref_log_prob) * chosen_scale;
  const double b = (rejected.log_prob - rejected.ref_log_prob) * rejected_scale;
  PairLoss pair = {.chosen_reward = beta * a, .rejected_reward = beta * b};
  double d_a = 0, d_b = 0;
  switch (options.type) {
    case PreferenceLossType::kSigmoid:
    case PreferenceLossType::kSimpo: {
      const double target = options.type == PreferenceLossType::kSimpo ? options.simpo_gamma : 0;
      const Smoothed loss = SmoothedLogLoss(beta * (a - b) - target, options.label_smoothing);
      pair.value = loss.value;
      d_a = beta * loss.derivative;
      d_b = -d_a;
      break;
    }
    case PreferenceLossType::kHinge:
      // A NaN stays one.
      pair.value = beta * (a - b) >= 1 ? 0 : 1 - beta * (a - b);
      d_a = pair.value == 0 ? 0 : -beta;
      d_b = -d_a;
      break;
    case PreferenceLossType::kIpo: {
      const double error = a - b - 1 / (2 * beta);
      pair.value = error * error;
      d_a = 2 * error;
      d_b = -d_a;
      break;
    }
    case PreferenceLossType::kOrpo: {
      const double log_odds = (a - b) - (Log1mExp(a) - Log1mExp(b));
      pair.value = -beta * LogSigmoid(log_odds);
      const double derivative = -beta * Sigmoid(-log_odds);
      d_a = derivative / -std::expm1(a);
      d_b = -derivative / -std::expm1(b);
      break;
    }
  }
  pair.d_chosen = d_a * chosen_scale;
  pair.d_rejected = d_b * rejected_scale;
  return pair;
}

template <typename Visit>
void VisitCounted(const TokenBatch& batch, const Sequence& sequence, Visit visit) {
  for (int64_t token = sequence.begin; token < sequence.end; ++token) {
    if (batch.Counts(token)) visit(token);
  }
}

Response Sum(const PreferenceInputs& inputs, int64_t index, bool with_reference) {
  Response response;
  VisitCounted(inputs.batch, inputs.batch.sequences[index], [&](int64_t token) {
    response.log_prob += inputs.log_prob[token];
    response.ref_log_prob += with_reference ? inputs.ref_log_prob[token] : 0;
    response.length += 1;
  });
  return response;
}

absl::Status Check(const PreferenceOptions& options, const PreferenceInputs& inputs, std::span<float> d_log_prob) {
  RETURN_IF_ERROR(Validate(options));
  RETURN_IF_ERROR(Validate(inputs.batch));
  RETURN_IF_ERROR(CheckLength(inputs.batch, inputs.log_prob.size(), "log_prob"));
  if (NeedsReference(options.type)) {
    RETURN_IF_ERROR(CheckLength(inputs.batch, inputs.ref_log_prob.size(), "ref_log_prob"));
  }
  RETURN_IF_ERROR(CheckLength(inputs.batch, d_log_prob.size(), "d_log_prob"));
  const auto sequences = static_cast<int64_t>(inputs.batch.sequences.size());
  for (const PreferencePair& pair : inputs.pairs) {
    if (std::min(pair.chosen, pair.rejected) < 0 || std::max(pair.chosen, pair.rejected) >= sequences) {
      return absl::InvalidArgumentError(absl::StrCat("pair (", pair.chosen, ", ", pair.rejected,
                                                     ") names a sequence outside the batch's ", sequences));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const PreferenceLossInfo> PreferenceLosses() { return kLosses; }

std::optional<PreferenceLossType> ParsePreferenceLoss(absl::string_view name) {
  for (const PreferenceLossInfo& row : kLosses) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

absl::Status Validate(const PreferenceOptions& options) {
  if (!(options.beta > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("beta: is ", options.beta, ", must be above 0"));
  }
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 0.5)) {
    return absl::InvalidArgumentError(
        absl::StrCat("label_smoothing: is ", options.label_smoothing, ", must be in [0, 0.5)"));
  }
  return absl::OkStatus();
}

PreferenceTotals CountPairs(const TokenBatch& batch, std::span<const PreferencePair> pairs) {
  PreferenceTotals totals;
  for (const PreferencePair& pair : pairs) {
    const int64_t chosen = CountedTokens(batch, batch.sequences[pair.chosen]);
    if (chosen == 0 || CountedTokens(batch, batch.sequences[pair.rejected]) == 0) continue;
    ++totals.pairs;
    totals.chosen_tokens += chosen;
  }
  return totals;
}

PreferenceMetrics& PreferenceMetrics::operator+=(const PreferenceMetrics& other) {
  loss += other.loss;
  nll += other.nll;
  accuracy += other.accuracy;
  margin += other.margin;
  chosen_reward += other.chosen_reward;
  rejected_reward += other.rejected_reward;
  pairs_left_out += other.pairs_left_out;
  return *this;
}

absl::StatusOr<PreferenceMetrics> PreferenceLoss(const PreferenceOptions& options, const PreferenceInputs& inputs,
                                                 const PreferenceTotals& totals, std::span<float> d_log_prob) {
  RETURN_IF_ERROR(Check(options, inputs, d_log_prob));
  std::fill(d_log_prob.begin(), d_log_prob.end(), 0.0f);
  // In double until all pairs are in: a response may be in several.
  std::vector<double> d_sum(inputs.batch.sequences.size(), 0.0);
  PreferenceMetrics metrics;
  const bool with_reference = NeedsReference(options.type);
  for (const PreferencePair& pair : inputs.pairs) {
    const Response chosen = Sum(inputs, pair.chosen, with_reference);
    const Response rejected = Sum(inputs, pair.rejected, with_reference);
    if (chosen.length == 0 || rejected.length == 0) {
      ++metrics.pairs_left_out;
      continue;
    }
    const PairLoss loss = LossOf(options, chosen, rejected);
    const auto pairs = static_cast<double>(totals.pairs);
    metrics.loss += loss.value / pairs;
    d_sum[pair.chosen] += loss.d_chosen / pairs;
    d_sum[pair.rejected] += loss.d_rejected / pairs;
    if (options.type == PreferenceLossType::kOrpo) {
      const auto chosen_tokens = static_cast<double>(totals.chosen_tokens);
      metrics.nll -= chosen.log_prob / chosen_tokens;
      d_sum[pair.chosen] -= 1 / chosen_tokens;
    }
    metrics.accuracy.Add(loss.chosen_reward > loss.rejected_reward);
    metrics.margin.Add(loss.chosen_reward - loss.rejected_reward);
    metrics.chosen_reward.Add(loss.chosen_reward);
    metrics.rejected_reward.Add(loss.rejected_reward);
  }
  metrics.loss += metrics.nll;
  for (size_t i = 0; i < d_sum.size(); ++i) {
    VisitCounted(inputs.batch, inputs.batch.sequences[i],
                 [&](int64_t token) { d_log_prob[token] = static_cast<float>(d_sum[i]); });
  }
  return metrics;
}

}  // namespace sluice::engine
