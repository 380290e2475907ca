// Which tokens top-k, top-p and min-p leave of a row, without sorting the vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::kernels::cpu {

struct Candidate {
  float weight;  // exp((logit - largest) / temperature): in [0, 1]
  int32_t token;
};

// More probable first; of equal ones the lower id.
inline bool Before(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

// Those of `weights` (one for each token, the largest 1) that stay, in no particular order but always the same, each
// with a positive weight. At least one. `total`: the sum of all weights.
std::vector<Candidate> Filter(std::span<const float> weights, double total, int64_t top_k, float top_p, float min_p);

}  // namespace sluice::kernels::cpu
