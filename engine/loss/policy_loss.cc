#include "engine/loss/policy_loss.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/loss/policy_loss_mode.h"

namespace sluice::engine {
namespace {

const PolicyModeRow& RowOf(PolicyLossMode mode) {
  const auto rows = PolicyModeRows();
  return *std::find_if(rows.begin(), rows.end(), [&](const PolicyModeRow& row) { return row.info.mode == mode; });
}

absl::Status CheckArrays(const PolicyLossOptions& options, const PolicyLossInputs& inputs,
                         const PolicyLossGradients& gradients) {
  const TokenBatch& batch = inputs.batch;
  const PolicyLossModeInfo& info = InfoOf(options.mode);
  const auto check = [&](bool needed, size_t size, absl::string_view name) {
    return needed || size != 0 ? CheckLength(batch, size, name) : absl::OkStatus();
  };
  RETURN_IF_ERROR(check(true, inputs.log_prob.size(), "log_prob"));
  RETURN_IF_ERROR(check(info.uses_old_log_prob, inputs.old_log_prob.size(), "old_log_prob"));
  RETURN_IF_ERROR(check(true, inputs.advantage.size(), "advantage"));
  RETURN_IF_ERROR(check(options.entropy_coeff != 0, inputs.entropy.size(), "entropy"));
  RETURN_IF_ERROR(check(options.use_kl_loss, inputs.ref_log_prob.size(), "ref_log_prob"));
  RETURN_IF_ERROR(check(false, inputs.importance_weight.size(), "importance_weight"));
  RETURN_IF_ERROR(check(info.needs_selection, inputs.selected.size(), "selected"));
  RETURN_IF_ERROR(check(true, gradients.d_log_prob.size(), "d_log_prob"));
  return check(options.entropy_coeff != 0, gradients.d_entropy.size(), "d_entropy");
}

// Buffers of one sequence, reused for the next.
class Gathered {
 public:
  void Fill(const PolicyLossInputs& inputs, const Sequence& sequence) {
    tokens.clear();
    for (int64_t token = sequence.begin; token < sequence.end; ++token) {
      if (inputs.batch.Counts(token)) tokens.push_back(token);
    }
    Take(inputs.log_prob, 0, log_prob);
    Take(inputs.old_log_prob.empty() ? inputs.log_prob : inputs.old_log_prob, 0, old_log_prob);
    Take(inputs.advantage, 0, advantage);
    Take(inputs.importance_weight, 1, importance_weight);
    Take(inputs.selected, 0, selected);
    losses.assign(tokens.size(), {});
  }

  PolicySequence View() const { return {log_prob, old_log_prob, advantage, selected}; }

  std::vector<int64_t> tokens;
  std::vector<double> log_prob, old_log_prob, advantage, importance_weight;
  std::vector<uint8_t> selected;
  std::vector<PolicyTokenLoss> losses;

 private:
  template <typename From, typename To>
  void Take(std::span<const From> from, std::type_identity_t<To> otherwise, std::vector<To>& to) {
    to.clear();
    for (const int64_t token : tokens) to.push_back(from.empty() ? otherwise : static_cast<To>(from[token]));
  }
};

void UseGeometricMean(std::vector<double>& weights) {
  double log_sum = 0;
  for (const double weight : weights) log_sum += std::log(weight);
  std::fill(weights.begin(), weights.end(), std::exp(log_sum / static_cast<double>(weights.size())));
}

double MaxKeepingNan(double a, double b) { return std::isnan(b) || b > a ? b : a; }

void CountRatio(double log_ratio, PolicyLossMetrics& metrics) {
  metrics.ppo_kl.Add(-std::clamp(log_ratio, -kMaxLogRatio, kMaxLogRatio));
  metrics.max_abs_log_ratio = MaxKeepingNan(metrics.max_abs_log_ratio, std::abs(log_ratio));
}

// The bonus -entropy_coeff * agg(entropy) of one sequence; `weight` is that of one of its tokens.
void AddEntropy(const PolicyLossOptions& options, const PolicyLossInputs& inputs, const Gathered& sequence,
                double weight, const PolicyLossGradients& gradients, PolicyLossMetrics& metrics) {
  if (inputs.entropy.empty()) return;
  double sum = 0;
  for (const int64_t token : sequence.tokens) {
    metrics.entropy.Add(inputs.entropy[token]);
    sum += inputs.entropy[token];
    if (!gradients.d_entropy.empty()) gradients.d_entropy[token] = static_cast<float>(-options.entropy_coeff * weight);
  }
  metrics.entropy_loss += weight * sum;
}

}  // namespace

std::span<const PolicyLossModeInfo> PolicyLossModes() {
  static const auto& infos = *new std::vector<PolicyLossModeInfo>([] {
    std::vector<PolicyLossModeInfo> result;
    for (const PolicyModeRow& row : PolicyModeRows()) result.push_back(row.info);
    return result;
  }());
  return infos;
}

const PolicyLossModeInfo& InfoOf(PolicyLossMode mode) { return RowOf(mode).info; }

std::optional<PolicyLossMode> ParsePolicyLossMode(absl::string_view name) {
  for (const PolicyModeRow& row : PolicyModeRows()) {
    if (row.info.name == name) return row.info.mode;
  }
  return std::nullopt;
}

absl::Status Validate(const PolicyLossOptions& options) {
  const auto require = [](bool condition, absl::string_view key, double value, absl::string_view range) {
    return condition ? absl::OkStatus()
                     : absl::InvalidArgumentError(absl::StrCat(key, ": is ", value, ", must be ", range));
  };
  const PolicyLossMode mode = options.mode;
  RETURN_IF_ERROR(require(options.clip_ratio_low >= 0, "clip_ratio_low", options.clip_ratio_low, "0 or more"));
  RETURN_IF_ERROR(require(options.clip_ratio_high >= 0, "clip_ratio_high", options.clip_ratio_high, "0 or more"));
  RETURN_IF_ERROR(require(mode != PolicyLossMode::kVanilla || options.clip_ratio_c > 1, "clip_ratio_c",
                          options.clip_ratio_c, "above 1"));
  const bool sapo = mode == PolicyLossMode::kSapo;
  RETURN_IF_ERROR(require(!sapo || options.tau_pos > 0, "tau_pos", options.tau_pos, "above 0"));
  RETURN_IF_ERROR(require(!sapo || options.tau_neg > 0, "tau_neg", options.tau_neg, "above 0"));
  RETURN_IF_ERROR(require(mode != PolicyLossMode::kDro || options.dro_beta > 0, "policy_loss.dro_beta",
                          options.dro_beta, "above 0 for loss_mode dro"));
  return require(mode != PolicyLossMode::kKlCov || options.ppo_kl_coef >= 0, "policy_loss.ppo_kl_coef",
                 options.ppo_kl_coef, "0 or more");
}

PolicyLossMetrics& PolicyLossMetrics::operator+=(const PolicyLossMetrics& other) {
  loss += other.loss;
  pg_loss += other.pg_loss;
  entropy_loss += other.entropy_loss;
  kl_loss += other.kl_loss;
  clip_fraction += other.clip_fraction;
  clip_fraction_lower += other.clip_fraction_lower;
  ppo_kl += other.ppo_kl;
  entropy += other.entropy;
  max_abs_log_ratio = MaxKeepingNan(max_abs_log_ratio, other.max_abs_log_ratio);
  return *this;
}

absl::StatusOr<PolicyLossMetrics> PolicyLoss(const PolicyLossOptions& options, const PolicyLossInputs& inputs,
                                             const BatchTotals& totals, const PolicyLossGradients& gradients) {
  RETURN_IF_ERROR(Validate(options));
  RETURN_IF_ERROR(Validate(options.aggregation, totals));
  RETURN_IF_ERROR(Validate(inputs.batch));
  RETURN_IF_ERROR(CheckArrays(options, inputs, gradients));
  std::fill(gradients.d_log_prob.begin(), gradients.d_log_prob.end(), 0.0f);
  std::fill(gradients.d_entropy.begin(), gradients.d_entropy.end(), 0.0f);

  const PolicyModeRow& row = RowOf(options.mode);
  const LossAggregation pg_aggregation =
      row.info.sequence_mean_of_token_means ? LossAggregation::kSeqMeanTokenMean : options.aggregation;
  PolicyLossMetrics metrics;
  Gathered gathered;
  for (const Sequence& sequence : inputs.batch.sequences) {
    gathered.Fill(inputs, sequence);
    const auto length = static_cast<int64_t>(gathered.tokens.size());
    if (length == 0) continue;
    row.function(options, gathered.View(), gathered.losses);
    if (row.sequence_importance_weight) UseGeometricMean(gathered.importance_weight);

    const double pg_weight = TokenWeight(pg_aggregation, totals, length);
    const double weight = TokenWeight(options.aggregation, totals, length);
    double pg_sum = 0, kl_sum = 0;
    for (size_t i = 0; i < gathered.tokens.size(); ++i) {
      const PolicyTokenLoss& token = gathered.losses[i];
      const double importance = gathered.importance_weight[i];
      // A rejected token's loss may be infinite; its weight of 0 leaves it out.
      double derivative = importance == 0 ? 0 : pg_weight * importance * token.d_log_prob;
      pg_sum += importance == 0 ? 0 : importance * token.value;
      metrics.clip_fraction.Add(token.clipped);
      metrics.clip_fraction_lower.Add(token.clipped_lower);
      if (!inputs.old_log_prob.empty()) CountRatio(gathered.log_prob[i] - gathered.old_log_prob[i], metrics);
      if (options.use_kl_loss) {
        const KlTerm kl =
            EstimateKl(options.kl_loss_type, gathered.log_prob[i], inputs.ref_log_prob[gathered.tokens[i]]);
        kl_sum += kl.value;
        derivative += options.kl_loss_coef * weight * kl.d_log_prob;
      }
      gradients.d_log_prob[gathered.tokens[i]] = static_cast<float>(derivative);
    }
    metrics.pg_loss += pg_weight * pg_sum;
    metrics.kl_loss += weight * kl_sum;
    AddEntropy(options, inputs, gathered, weight, gradients, metrics);
  }
  metrics.loss = metrics.pg_loss - options.entropy_coeff * metrics.entropy_loss;
  if (options.use_kl_loss) metrics.loss += options.kl_loss_coef * metrics.kl_loss;
  return metrics;
}

}  // namespace sluice::engine
