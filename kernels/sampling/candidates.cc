#include "kernels/sampling/candidates.h"

#include <algorithm>

namespace sluice::kernels::cpu {
namespace {

// The tokens with weight >= `least` and > 0. Blocks without one are passed over at the speed of a maximum.
std::vector<Candidate> AtLeast(std::span<const float> weights, float least) {
  constexpr size_t kBlock = 64;
  std::vector<Candidate> kept;
  for (size_t begin = 0; begin < weights.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, weights.size());
    float largest = 0.0f;
#pragma omp simd reduction(max : largest)
    for (size_t i = begin; i < end; ++i) largest = weights[i] > largest ? weights[i] : largest;
    if (largest < least) continue;
    for (size_t i = begin; i < end; ++i) {
      if (weights[i] >= least && weights[i] > 0.0f) kept.push_back({weights[i], static_cast<int32_t>(i)});
    }
  }
  return kept;
}

void KeepFirst(std::vector<Candidate>& candidates, size_t count) {
  if (count >= candidates.size()) return;
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<int64_t>(count) - 1, candidates.end(), Before);
  candidates.resize(count);
}

// The k best, with a buffer that is cut back to k when it is full: after each cut only better tokens enter.
std::vector<Candidate> TopK(std::span<const float> weights, size_t k) {
  constexpr size_t kBlock = 64;
  const size_t room = 2 * k + kBlock;
  std::vector<Candidate> kept;
  kept.reserve(room + kBlock);
  float border = 0.0f;  // a token must be above it: of equal ones the earlier is kept
  for (size_t begin = 0; begin < weights.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, weights.size());
    float largest = 0.0f;
#pragma omp simd reduction(max : largest)
    for (size_t i = begin; i < end; ++i) largest = weights[i] > largest ? weights[i] : largest;
    if (largest <= border) continue;
    for (size_t i = begin; i < end; ++i) {
      if (weights[i] > border) kept.push_back({weights[i], static_cast<int32_t>(i)});
    }
    if (kept.size() < room) continue;
    KeepFirst(kept, k);
    border = kept.back().weight;  // nth_element leaves the k-th there
  }
  KeepFirst(kept, k);
  return kept;
}

double MassOf(std::span<const Candidate> candidates) {
  double sum = 0.0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

// Cuts the list behind the candidate with which the sum of the best reaches `target`: halves of it are set in order
// only as far as they hold the border.
void KeepMass(std::vector<Candidate>& candidates, double target) {
  constexpr size_t kFew = 64;
  size_t low = 0, high = candidates.size();  // the border lies in [low, high)
  double before = 0.0;                       // sum of [0, low)
  while (high - low > kFew) {
    const size_t middle = low + (high - low) / 2;
    const auto at = [&](size_t i) { return candidates.begin() + static_cast<int64_t>(i); };
    std::nth_element(at(low), at(middle), at(high), Before);
    const double mass = MassOf(std::span(candidates).subspan(low, middle - low));
    if (before + mass >= target) {
      high = middle;
    } else {
      before += mass;
      low = middle;
    }
  }
  std::sort(candidates.begin() + static_cast<int64_t>(low), candidates.begin() + static_cast<int64_t>(high), Before);
  size_t end = low;
  while (end < high && (end == 0 || before < target)) before += candidates[end++].weight;
  candidates.resize(end);
}

}  // namespace

std::vector<Candidate> Filter(std::span<const float> weights, double total, int64_t top_k, float top_p, float min_p) {
  const bool by_rank = top_k >= 1 && top_k < static_cast<int64_t>(weights.size());
  const bool by_mass = top_p < 1.0f;
  // What every later filter drops anyway is not even collected.
  float least = std::min(min_p, 1.0f);
  std::vector<Candidate> kept;
  if (by_rank) {
    kept = TopK(weights, static_cast<size_t>(top_k));
  } else if (by_mass) {
    // All tokens below this weight together hold no more than 1 - top_p, so the border is above it.
    const double border = (1.0 - top_p) * total / static_cast<double>(weights.size());
    // min-p comes after top-p and must not change what top-p renormalises over.
    kept = AtLeast(weights, static_cast<float>(std::min(border * (1.0 - 1e-6), 1.0)));
  } else {
    kept = AtLeast(weights, least);
  }
  if (by_mass) KeepMass(kept, top_p * (by_rank ? MassOf(kept) : total));
  if (least > 0.0f) std::erase_if(kept, [&](const Candidate& candidate) { return candidate.weight < least; });
  return kept;
}

}  // namespace sluice::kernels::cpu
