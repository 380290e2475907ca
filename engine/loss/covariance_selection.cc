#include "engine/loss/covariance_selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "kernels/philox.h"

namespace sluice::engine {
namespace {

// Indices of the tokens in the order of their names: sums in it do not depend on the order given.
std::vector<size_t> Ordered(std::span<const CovarianceToken> tokens) {
  std::vector<size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(tokens[a].sample, tokens[a].token) < std::tie(tokens[b].sample, tokens[b].token);
  });
  return order;
}

// Of each token, in the order given.
std::vector<double> Covariances(std::span<const CovarianceToken> tokens, std::span<const size_t> order) {
  double log_prob = 0, advantage = 0;
  for (const size_t i : order) {
    log_prob += tokens[i].log_prob;
    advantage += tokens[i].advantage;
  }
  const auto count = static_cast<double>(tokens.size());
  std::vector<double> covariance;
  for (const CovarianceToken& token : tokens) {
    covariance.push_back((token.advantage - advantage / count) * (token.log_prob - log_prob / count));
  }
  return covariance;
}

size_t Count(double ratio, size_t tokens) {
  if (!(ratio > 0)) return 0;
  return std::max<size_t>(1, static_cast<size_t>(ratio * static_cast<double>(tokens)));
}

uint64_t RandomKey(uint64_t seed, const CovarianceToken& token) {
  const kernels::PhiloxBlock block = kernels::Philox(seed, token.sample, static_cast<uint64_t>(token.token));
  return uint64_t{block[0]} << 32 | block[1];
}

bool ClippedByPpo(const ClipCovOptions& options, const CovarianceToken& token) {
  const double ratio = std::exp(std::clamp(token.log_prob - token.old_log_prob, -20.0, 20.0));
  const double bounded = std::clamp(ratio, 1 - options.clip_ratio_low, 1 + options.clip_ratio_high);
  return -token.advantage * bounded > -token.advantage * ratio;
}

std::vector<uint8_t> MarkFirst(std::span<const size_t> ranked, size_t count, size_t tokens) {
  std::vector<uint8_t> selected(tokens, 0);
  for (size_t i = 0; i < std::min(count, ranked.size()); ++i) selected[ranked[i]] = 1;
  return selected;
}

}  // namespace

std::vector<uint8_t> SelectClipCov(const ClipCovOptions& options, std::span<const CovarianceToken> tokens,
                                   uint64_t seed) {
  const std::vector<size_t> order = Ordered(tokens);
  const std::vector<double> covariance = Covariances(tokens, order);
  std::vector<size_t> eligible;
  std::vector<uint64_t> key(tokens.size());
  for (const size_t i : order) {
    key[i] = RandomKey(seed, tokens[i]);
    const bool inside = covariance[i] > options.lower && covariance[i] < options.upper;
    if (inside && !ClippedByPpo(options, tokens[i])) eligible.push_back(i);
  }
  std::stable_sort(eligible.begin(), eligible.end(), [&](size_t a, size_t b) { return key[a] < key[b]; });
  return MarkFirst(eligible, Count(options.ratio, tokens.size()), tokens.size());
}

std::vector<uint8_t> SelectKlCov(double ratio, std::span<const CovarianceToken> tokens) {
  std::vector<size_t> order = Ordered(tokens);
  const std::vector<double> covariance = Covariances(tokens, order);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return covariance[a] > covariance[b]; });
  return MarkFirst(order, Count(ratio, tokens.size()), tokens.size());
}

}  // namespace sluice::engine
