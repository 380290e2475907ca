// A row is turned into weights exp((l - largest) / t), summed by blocks in double; the draw finds the block, then the
// token in it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/philox.h"
#include "kernels/sampling/backends.h"
#include "kernels/sampling/candidates.h"
#include "kernels/vector_math.h"

namespace sluice::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kBlock = 512;

float LargestOf(std::span<const float> logits) {
  float largest = -kInfinity;
#pragma omp simd reduction(max : largest)
  for (size_t i = 0; i < logits.size(); ++i) largest = logits[i] > largest ? logits[i] : largest;
  return largest;
}

// Comparisons pass over NaN, so it is looked for by itself: only where a sum came out wrong.
absl::Status NameBadLogit(std::span<const float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == kInfinity) {
      return absl::InvalidArgumentError(absl::StrCat("logit of token ", i, " is ", logits[i]));
    }
  }
  return absl::InvalidArgumentError("every token is ruled out (all logits are -inf)");
}

// l / t as (l - largest) * this: finite, so that the largest logit's weight is 1 at any temperature.
float InverseTemperature(float temperature) {
  if (temperature == 0.0f) return 1.0f;
  return std::min(1.0f / temperature, std::numeric_limits<float>::max());
}

struct Weights {
  std::vector<float> of_token;
  std::vector<double> block_sums;  // of kBlock tokens each
  double total = 0.0;
};

float BlockWeights(const float* logits, size_t count, float largest, float factor, float* weights) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < count; ++i) {
    weights[i] = FastExp((logits[i] - largest) * factor);
    sum += weights[i];
  }
  return sum;
}

// REQUIRES: largest is finite. A NaN makes the total NaN.
Weights WeightsOf(std::span<const float> logits, float largest, float factor) {
  Weights weights;
  weights.of_token.resize(logits.size());
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, logits.size() - begin);
    weights.block_sums.push_back(
        BlockWeights(logits.data() + begin, count, largest, factor, weights.of_token.data() + begin));
    weights.total += weights.block_sums.back();
  }
  return weights;
}

// Logits after steps 1 and 2; empty where they change nothing.
std::vector<float> Adjusted(std::span<const float> logits, const SamplingRow& row) {
  const bool penalised = row.repetition_penalty != 1.0f && !row.seen.empty();
  if (!penalised && row.forbidden.empty()) return {};
  std::vector<float> adjusted(logits.begin(), logits.end());
  if (penalised) {
    for (const int32_t id : row.seen) {  // from the original: an id that comes twice is penalised once
      const float logit = logits[static_cast<size_t>(id)];
      adjusted[static_cast<size_t>(id)] =
          logit > 0.0f ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    }
  }
  for (const int32_t id : row.forbidden) adjusted[static_cast<size_t>(id)] = -kInfinity;
  return adjusted;
}

bool HasFilter(const SamplingRow& row, size_t vocabulary) {
  const bool by_rank = row.top_k >= 1 && row.top_k < static_cast<int64_t>(vocabulary);
  return by_rank || row.top_p < 1.0f || row.min_p > 0.0f;
}

// 53 random bits in [0, 1).
double Uniform(const SamplingRow& row) {
  const PhiloxBlock block = Philox(row.seed, row.stream, row.index);
  const uint64_t bits = (uint64_t{block[0]} << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// The token at which the running sum passes `target`, in the order of the ids.
int32_t TokenAt(const Weights& weights, double target) {
  size_t block = 0;
  while (block + 1 < weights.block_sums.size() && target >= weights.block_sums[block]) {
    target -= weights.block_sums[block++];
  }
  // Rounding may leave the sum of a block short of its parts, or lead past the last token with a weight.
  int32_t last = -1;
  const size_t begin = block * kBlock, end = std::min(begin + kBlock, weights.of_token.size());
  for (size_t i = begin; i < end; ++i) {
    if (weights.of_token[i] == 0.0f) continue;
    last = static_cast<int32_t>(i);
    target -= weights.of_token[i];
    if (target < 0.0) return last;
  }
  for (size_t i = begin; last < 0;) {
    if (weights.of_token[--i] > 0.0f) last = static_cast<int32_t>(i);
  }
  return last;
}

int32_t TokenAt(std::span<const Candidate> candidates, double target) {
  for (const Candidate& candidate : candidates) {
    target -= candidate.weight;
    if (target < 0.0) return candidate.token;
  }
  return candidates.back().token;
}

double MassOf(std::span<const Candidate> candidates) {
  double mass = 0.0;
  for (const Candidate& candidate : candidates) mass += candidate.weight;
  return mass;
}

int32_t FirstLargest(std::span<const float> logits, float largest) {
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
}

}  // namespace

absl::Status SampleRow(std::span<const float> logits, const SamplingRow& row, SampledToken* out) {
  const float largest = LargestOf(logits);
  if (!std::isfinite(largest)) return NameBadLogit(logits);
  const float factor = InverseTemperature(row.temperature);
  Weights weights = WeightsOf(logits, largest, factor);
  if (!std::isfinite(weights.total)) return NameBadLogit(logits);
  const double log_total = std::log(weights.total);

  const std::vector<float> adjusted = Adjusted(logits, row);
  const std::span<const float> drawn_from = adjusted.empty() ? logits : std::span<const float>(adjusted);
  const float top = adjusted.empty() ? largest : LargestOf(adjusted);
  if (!std::isfinite(top)) return NameBadLogit(adjusted);
  if (row.temperature == 0.0f) {
    out->token = FirstLargest(drawn_from, top);
  } else {
    if (!adjusted.empty()) weights = WeightsOf(adjusted, top, factor);
    if (HasFilter(row, logits.size())) {
      const std::vector<Candidate> kept = Filter(weights.of_token, weights.total, row.top_k, row.top_p, row.min_p);
      out->token = TokenAt(kept, Uniform(row) * MassOf(kept));
    } else {
      out->token = TokenAt(weights, Uniform(row) * weights.total);
    }
  }
  const float logit = logits[static_cast<size_t>(out->token)];
  out->log_prob = static_cast<float>(static_cast<double>((logit - largest) * factor) - log_total);
  return absl::OkStatus();
}

absl::Status RowDistribution(std::span<const float> logits, const SamplingRow& row, std::span<float> probabilities) {
  if (!std::isfinite(LargestOf(logits))) return NameBadLogit(logits);
  const std::vector<float> adjusted = Adjusted(logits, row);
  const std::span<const float> drawn_from = adjusted.empty() ? logits : std::span<const float>(adjusted);
  const float top = LargestOf(drawn_from);
  if (!std::isfinite(top)) return NameBadLogit(drawn_from);
  std::fill(probabilities.begin(), probabilities.end(), 0.0f);
  const Weights weights = WeightsOf(drawn_from, top, InverseTemperature(row.temperature));
  if (!std::isfinite(weights.total)) return NameBadLogit(drawn_from);
  if (row.temperature == 0.0f) {
    probabilities[static_cast<size_t>(FirstLargest(drawn_from, top))] = 1.0f;
  } else if (HasFilter(row, logits.size())) {
    const std::vector<Candidate> kept = Filter(weights.of_token, weights.total, row.top_k, row.top_p, row.min_p);
    const double mass = MassOf(kept);
    for (const Candidate& candidate : kept) {
      probabilities[static_cast<size_t>(candidate.token)] = static_cast<float>(candidate.weight / mass);
    }
  } else {
    for (size_t i = 0; i < probabilities.size(); ++i) {
      probabilities[i] = static_cast<float>(weights.of_token[i] / weights.total);
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
