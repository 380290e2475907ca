// What several answers to each prompt say about a model. Pure.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "engine/roles/answer_batch.h"
#include "engine/roles/metric_sums.h"

namespace sluice::engine {

// The chance that of k answers drawn without replacement from n, of which c are right, at least one is right:
// 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, 2107.03374). REQUIRES: 0 <= c <= n, 1 <= k <= n.
double PassAtK(int64_t n, int64_t c, int64_t k);

// Adds, for groups of `n` answers to one prompt that lie one after another (a score above 0 is right, a failed reward
// is left out):
//   val/score/mean, val/score/best@n, val/score/worst@n
//   val/pass@k    for k = 1, 2, 4, ... and n
//   val/maj@n     where rewards tell what they read out of the answers: the score of what most answers say, the first
//                 said of equals; 0 where nothing could be read
void AddEvaluation(absl::Span<const Answer> answers, int64_t n, MetricSums* metrics);

}  // namespace sluice::engine
