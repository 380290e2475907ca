// Advantages: from the rewards of sampled responses to one number per token (verl's algorithm.adv_estimator).
//
// R is a sample's reward: its score plus its token rewards; a group is the samples of one prompt; mean, std (unbiased)
// and lengths are over the group; t runs over the counted tokens of one response, what lies between is stepped over.
//   gae                           d[t] = r[t] + gamma V[t+1] - V[t];  A[t] = d[t] + gamma lam A[t+1];  whitened
//                                 returns = A + V before whitening                                    (1506.02438)
//   grpo                          (R - mean) / (std + 1e-6), or R - mean without norm_adv_by_std_in_grpo
//                                                                              (2402.03300; Dr. GRPO 2503.20783)
//   grpo_passk                    best sample: (R - second best) / (std + 1e-6), the others 0          (2503.19595)
//   reinforce_plus_plus           reward-to-go with gamma, whitened                                    (2501.03262)
//   reinforce_plus_plus_baseline  R - mean, whitened                                                   (2501.03262)
//   rloo                          (R - mean) k / (k - 1) for k samples                                 (2402.14740)
//   opo                           R - sum(length R) / sum(length)                                      (2505.23585)
//   remax                         reward-to-go - reward of the greedy response                         (2310.10505)
//   gpg                           (R - mean) B / (B - M), B samples of which M lie in groups without spread
//   (2504.02546) gdpo                          sum over reward components k of w[k] grpo(R[k]), whitened (2601.05242)
// whitened: (A - mean) / sqrt(variance + 1e-8) over the counted tokens of the whole batch, variance unbiased.
//
// Equal rewards give exactly 0 in every estimator with a group baseline: differences are taken before sums.
// A group of one has no baseline: 0 in those estimators, in every code path.
// A sample whose score is missing or not finite has failed: it is in no statistic, its advantage is 0, and `scored`
// says so: the caller takes its tokens out of the loss and of its denominator (ClearFailed). Samples of a group are
// taken in the order of Sequence::sample, so the batch's order changes nothing.
//
// Two halves, because a batch may lie on several ranks: ComputeAdvantages on each, the sums added up over the ranks
// (AdvantageSums is plain numbers), FinishAdvantages on each. REQUIRES: all samples of a group lie on one rank.
//
// Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

enum class AdvantageEstimator {
  kGae,
  kGrpo,
  kGrpoPassk,
  kReinforcePlusPlus,
  kReinforcePlusPlusBaseline,
  kRloo,
  kOpo,
  kRemax,
  kGpg,
  kGdpo,
};

// What the configuration, the plan and the documentation need to know of an estimator.
struct AdvantageEstimatorInfo {
  AdvantageEstimator estimator;
  absl::string_view name;
  bool needs_groups = false;      // compares the samples of a prompt: rollout.n must be above 1
  bool needs_values = false;      // a critic
  bool needs_baseline = false;    // a greedy response per prompt
  bool needs_components = false;  // several rewards per sample
  bool whitens = false;
};
std::span<const AdvantageEstimatorInfo> AdvantageEstimators();
const AdvantageEstimatorInfo& InfoOf(AdvantageEstimator estimator);
std::optional<AdvantageEstimator> ParseAdvantageEstimator(absl::string_view name);

struct AdvantageOptions {
  AdvantageEstimator estimator = AdvantageEstimator::kGrpo;
  double gamma = 1;                      // in [0, 1]: gae, reinforce_plus_plus
  double lam = 1;                        // in [0, 1]: gae
  bool norm_adv_by_std_in_grpo = true;   // grpo, grpo_passk, gdpo
  std::vector<double> component_weight;  // gdpo: one per reward component, at least one
};

struct SampleReward {
  uint64_t group = 0;              // the prompt's number in the step
  std::optional<double> score;     // counts at the last counted token. None or not finite: the reward failed
  std::optional<double> baseline;  // remax: score of the prompt's greedy response; as score
};

struct AdvantageInputs {
  TokenBatch batch;                       // one sequence per sample
  std::span<const SampleReward> samples;  // [sequences]
  std::span<const float> token_rewards;  // [tokens], or empty: added to the scores, such as the penalty of kl_penalty.h
  std::span<const float> values;         // [tokens]: gae
  std::span<const double> components;    // [sequences, components] row by row: gdpo. Not finite: the reward failed
};

// Adds up over ranks.
struct AdvantageSums {
  double tokens = 0;
  double sum = 0;      // of the advantages of counted tokens
  double squares = 0;  // of their squares
  double samples = 0;  // scored ones
  double samples_in_flat_groups = 0;

  AdvantageSums& operator+=(const AdvantageSums& other) {
    tokens += other.tokens;
    sum += other.sum;
    squares += other.squares;
    samples += other.samples;
    samples_in_flat_groups += other.samples_in_flat_groups;
    return *this;
  }
};

// Adds up over ranks too; for metrics.
struct AdvantageCounts {
  int64_t failed_samples = 0;
  int64_t groups = 0;         // with at least one scored sample
  int64_t groups_of_one = 0;  // with exactly one
  int64_t flat_groups = 0;    // with several, all of equal reward: they teach nothing
};

struct Advantages {
  std::vector<double> advantage;  // [tokens]; 0 where no token counts and in failed samples
  std::vector<double>
      returns;  // [tokens]: the critic's target (gae), the reward-to-go, or the advantage before whitening
  std::vector<uint8_t> scored;  // [sequences]: 0 for a failed sample
  AdvantageSums sums;
  AdvantageCounts counts;
};

// This rank's half. InvalidArgument: an option out of range, an array that is missing or of another length.
absl::StatusOr<Advantages> ComputeAdvantages(const AdvantageOptions& options, const AdvantageInputs& inputs);

// The other half: `total` is the sum of all ranks' sums. inputs: those of ComputeAdvantages.
void FinishAdvantages(const AdvantageOptions& options, const AdvantageInputs& inputs, const AdvantageSums& total,
                      Advantages& advantages);

// Clears `mask` ([tokens], 1 where a token counts) in the sequences that are not scored.
void ClearFailed(std::span<const Sequence> sequences, std::span<const uint8_t> scored, std::span<uint8_t> mask);

}  // namespace sluice::engine
