// Scores of a response's length. Pure.
#pragma once

#include <cstdint>

namespace sluice::engine {

// Soft overlong punishment (Yu et al. 2025, DAPO, equation 13): 0 up to max_tokens - buffer tokens, then falling
// linearly by `factor` over `buffer` tokens and on: min(-(tokens - (max_tokens - buffer)) / buffer * factor, 0).
// REQUIRES: buffer >= 1.
double OverlongScore(int64_t tokens, int64_t max_tokens, int64_t buffer, double factor);

// -min(|tokens - target| / buffer, 1) * factor. REQUIRES: buffer >= 1.
double TargetLengthScore(int64_t tokens, int64_t target, int64_t buffer, double factor);

}  // namespace sluice::engine
