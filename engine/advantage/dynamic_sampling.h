// DAPO's choice of what to train on and its penalty for responses that run long (Yu et al. 2025, 2503.14476,
// sections 3.2 and 3.4).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::engine {

struct GroupMetric {
  uint64_t group = 0;
  std::optional<double> value;  // algorithm.filter_groups.metric of one sample; none or not finite: failed
};

struct FilteredGroups {
  std::vector<uint8_t> keep;      // one per sample, in the order given
  std::vector<uint64_t> kept;     // groups, ascending
  std::vector<uint64_t> dropped;  // groups, ascending
};

// Drops the groups whose samples all have the same metric, failed ones aside: every advantage in them would be 0. So is
// a group with fewer than two samples that did not fail. The caller samples further prompts until it has enough groups.
FilteredGroups FilterGroups(std::span<const GroupMetric> samples);

struct OverlongOptions {
  int64_t max_response_length = 0;  // > 0
  int64_t buffer_length = 0;        // in (0, max_response_length]
  double penalty_factor = 1.0;      // >= 0
};

// To add to the reward of a response of `length` tokens: min(-exceed / buffer_length * penalty_factor, 0) with
// exceed = length - (max_response_length - buffer_length). InvalidArgument: an option out of range.
absl::StatusOr<double> OverlongPenalty(const OverlongOptions& options, int64_t length);

}  // namespace sluice::engine
