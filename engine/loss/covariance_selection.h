// Which tokens of a mini-batch clip_cov and kl_cov act on (Cui et al. 2025, 2505.22617, equations 10-14).
//
//   cov[t] = (A[t] - mean A) (log_prob[t] - mean log_prob), means over all counted tokens of the mini-batch
//   clip_cov  max(1, floor(ratio n)) of the tokens with lower < cov < upper that PPO's clip leaves alone, drawn at
//   random kl_cov    the max(1, floor(ratio n)) tokens of largest cov
// (all that there are, if fewer; none if ratio is 0). The draw takes the tokens of smallest Philox number under
// (seed, sample, token), ties by (sample, token): the selection is a function of the set of tokens, so the same on
// every rank that holds the whole mini-batch's list, in whatever order it came.
//
// log_prob is the policy's before the mini-batch's update: known without another forward for the first mini-batch of a
// step (old_log_prob), by a forward without gradients for later ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::engine {

// A counted token of the mini-batch.
struct CovarianceToken {
  uint64_t sample = 0;
  int64_t token = 0;  // in its response; (sample, token) names it once
  double log_prob = 0;
  double old_log_prob = 0;  // clip_cov
  double advantage = 0;
};

struct ClipCovOptions {
  double ratio = 0.0002;  // policy_loss.clip_cov_ratio
  double lower = 1.0;     // policy_loss.clip_cov_lb
  double upper = 5.0;     // policy_loss.clip_cov_ub
  double clip_ratio_low = 0.2;
  double clip_ratio_high = 0.2;
};

// One per token, in the order given: 1 where selected (PolicyLossInputs::selected).
std::vector<uint8_t> SelectClipCov(const ClipCovOptions& options, std::span<const CovarianceToken> tokens,
                                   uint64_t seed);
// ratio: policy_loss.kl_cov_ratio.
std::vector<uint8_t> SelectKlCov(double ratio, std::span<const CovarianceToken> tokens);

}  // namespace sluice::engine
