#include "engine/reward/length_rule.h"

#include <algorithm>
#include <cmath>

namespace sluice::engine {

double OverlongScore(int64_t tokens, int64_t max_tokens, int64_t buffer, double factor) {
  const int64_t exceed = tokens - (max_tokens - buffer);
  if (exceed <= 0) return 0;  // not -0.0
  return std::min(-static_cast<double>(exceed) / static_cast<double>(buffer) * factor, 0.0);
}

double TargetLengthScore(int64_t tokens, int64_t target, int64_t buffer, double factor) {
  if (tokens == target) return 0;
  const double distance = std::abs(static_cast<double>(tokens - target)) / static_cast<double>(buffer);
  return -std::min(distance, 1.0) * factor;
}

}  // namespace sluice::engine
