#include "engine/loss/policy_loss_mode.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace sluice::engine {
namespace {

constexpr double kMaxSequenceLogRatio = 10;  // gspo

struct Ratio {
  double value;
  double d_log_prob;  // 0 where the exponent is clamped
};

Ratio TokenRatio(double log_prob, double old_log_prob) {
  const double log_ratio = log_prob - old_log_prob;
  const double ratio = std::exp(std::clamp(log_ratio, -kMaxLogRatio, kMaxLogRatio));
  return {ratio, std::abs(log_ratio) > kMaxLogRatio ? 0 : ratio};
}

// max(-A r, -A clip(r)). Where both are equal the ratio is inside the bounds and the gradient is that of either.
PolicyTokenLoss ClippedSurrogate(const PolicyLossOptions& options, double advantage, Ratio ratio) {
  const double bounded = std::clamp(ratio.value, 1 - options.clip_ratio_low, 1 + options.clip_ratio_high);
  const double unclipped_loss = -advantage * ratio.value;
  const double clipped_loss = -advantage * bounded;
  if (clipped_loss > unclipped_loss) return {.value = clipped_loss, .clipped = true};
  return {.value = unclipped_loss, .d_log_prob = -advantage * ratio.d_log_prob};
}

void Vanilla(const PolicyLossOptions& options, const PolicySequence& sequence, std::span<PolicyTokenLoss> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const double advantage = sequence.advantage[i];
    out[i] = ClippedSurrogate(options, advantage, TokenRatio(sequence.log_prob[i], sequence.old_log_prob[i]));
    const double upper = -advantage * options.clip_ratio_c;
    if (advantage < 0 && out[i].value > upper) {
      out[i].value = upper;
      out[i].d_log_prob = 0;
      out[i].clipped_lower = true;
    }
  }
}

void Gspo(const PolicyLossOptions& options, const PolicySequence& sequence, std::span<PolicyTokenLoss> out) {
  double log_ratio = 0;
  for (size_t i = 0; i < out.size(); ++i) log_ratio += sequence.log_prob[i] - sequence.old_log_prob[i];
  log_ratio /= static_cast<double>(out.size());
  const double value = std::exp(std::min(log_ratio, kMaxSequenceLogRatio));
  const Ratio ratio = {value, log_ratio > kMaxSequenceLogRatio ? 0 : value};
  for (size_t i = 0; i < out.size(); ++i) out[i] = ClippedSurrogate(options, sequence.advantage[i], ratio);
}

void Cispo(const PolicyLossOptions& options, const PolicySequence& sequence, std::span<PolicyTokenLoss> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const double ratio = TokenRatio(sequence.log_prob[i], sequence.old_log_prob[i]).value;
    const double bounded = std::clamp(ratio, 1 - options.clip_ratio_low, 1 + options.clip_ratio_high);
    const double factor = -bounded * sequence.advantage[i];
    out[i] = {.value = factor * sequence.log_prob[i], .d_log_prob = factor, .clipped = bounded != ratio};
  }
}

void Sapo(const PolicyLossOptions& options, const PolicySequence& sequence, std::span<PolicyTokenLoss> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const double advantage = sequence.advantage[i];
    const Ratio ratio = TokenRatio(sequence.log_prob[i], sequence.old_log_prob[i]);
    const double tau = advantage > 0 ? options.tau_pos : options.tau_neg;
    const double gate = 1 / (1 + std::exp(-tau * (ratio.value - 1)));
    out[i] = {.value = -advantage * gate * 4 / tau,
              .d_log_prob = -advantage * 4 * gate * (1 - gate) * ratio.d_log_prob};
  }
}

void GeoMean(const PolicyLossOptions& options, const PolicySequence& sequence, std::span<PolicyTokenLoss> out) {
  const auto length = static_cast<double>(out.size());
  double advantage = 0, log_ratio = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double token_ratio = sequence.log_prob[i] - sequence.old_log_prob[i];
    const double bounded = std::clamp(token_ratio, -options.clip_ratio_low, options.clip_ratio_high);
    const bool negative = sequence.advantage[i] < 0;
    // No sign, no ratio: a token without advantage has neither a term nor a gradient.
    const double sign = negative ? -1 : sequence.advantage[i] > 0;
    const bool clipped = sign * bounded < sign * token_ratio;
    log_ratio += sign == 0 ? 0 : (clipped ? bounded : token_ratio);
    advantage += sequence.advantage[i];
    out[i] = {.d_log_prob = clipped || sign == 0 ? 0.0 : 1.0,
              .clipped = clipped && !negative,
              .clipped_lower = clipped && negative};
  }
  // Each token carries the sequence's value; the weight 1 / (B n) of a token then gives its mean, and the derivative of
  // that mean by one log_prob is value / n, as n tokens carry it.
  const double value = -advantage / length * std::exp(log_ratio / length);
  for (PolicyTokenLoss& token : out) {
    token.value = value;
    token.d_log_prob *= value;
  }
}

void Gpg(const PolicyLossOptions&, const PolicySequence& sequence, std::span<PolicyTokenLoss> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = {.value = -sequence.advantage[i] * sequence.log_prob[i], .d_log_prob = -sequence.advantage[i]};
  }
}

void Dro(const PolicyLossOptions& options, const PolicySequence& sequence, std::span<PolicyTokenLoss> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const double log_ratio = sequence.log_prob[i] - sequence.old_log_prob[i];
    out[i] = {.value = -sequence.advantage[i] * sequence.log_prob[i] + options.dro_beta * log_ratio * log_ratio / 2,
              .d_log_prob = -sequence.advantage[i] + options.dro_beta * log_ratio};
  }
}

void ClipCov(const PolicyLossOptions& options, const PolicySequence& sequence, std::span<PolicyTokenLoss> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] =
        ClippedSurrogate(options, sequence.advantage[i], TokenRatio(sequence.log_prob[i], sequence.old_log_prob[i]));
    if (sequence.selected[i] != 0) out[i] = {.clipped = true};
  }
}

void KlCov(const PolicyLossOptions& options, const PolicySequence& sequence, std::span<PolicyTokenLoss> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const double advantage = sequence.advantage[i];
    const Ratio ratio = TokenRatio(sequence.log_prob[i], sequence.old_log_prob[i]);
    out[i] = {.value = -advantage * ratio.value, .d_log_prob = -advantage * ratio.d_log_prob};
    if (sequence.selected[i] == 0) continue;
    const double log_ratio = sequence.log_prob[i] - sequence.old_log_prob[i];
    out[i].value += options.ppo_kl_coef * std::abs(log_ratio);
    out[i].d_log_prob += options.ppo_kl_coef * ((log_ratio > 0) - (log_ratio < 0));
    out[i].clipped = true;
  }
}

//  mode, name, uses_old_log_prob, needs_selection, sequence_mean_of_token_means
constexpr PolicyModeRow kRows[] = {
    {{PolicyLossMode::kVanilla, "vanilla", true, false, false}, Vanilla, false},
    {{PolicyLossMode::kGspo, "gspo", true, false, true}, Gspo, false},
    {{PolicyLossMode::kCispo, "cispo", true, false, false}, Cispo, false},
    {{PolicyLossMode::kSapo, "sapo", true, false, true}, Sapo, false},
    {{PolicyLossMode::kGeoMean, "geo_mean", true, false, true}, GeoMean, true},
    {{PolicyLossMode::kGpg, "gpg", false, false, false}, Gpg, false},
    {{PolicyLossMode::kDro, "dro", true, false, false}, Dro, false},
    {{PolicyLossMode::kClipCov, "clip_cov", true, true, false}, ClipCov, false},
    {{PolicyLossMode::kKlCov, "kl_cov", true, true, false}, KlCov, false},
};

}  // namespace

std::span<const PolicyModeRow> PolicyModeRows() { return kRows; }

}  // namespace sluice::engine
