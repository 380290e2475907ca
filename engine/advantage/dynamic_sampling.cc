#include "engine/advantage/dynamic_sampling.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"

namespace sluice::engine {

FilteredGroups FilterGroups(std::span<const GroupMetric> samples) {
  struct Range {
    double lowest = 0, highest = 0;
    bool scored = false;
  };
  std::map<uint64_t, Range> groups;
  for (const GroupMetric& sample : samples) {
    Range& range = groups[sample.group];
    if (!sample.value.has_value() || !std::isfinite(*sample.value)) continue;
    range.lowest = range.scored ? std::min(range.lowest, *sample.value) : *sample.value;
    range.highest = range.scored ? std::max(range.highest, *sample.value) : *sample.value;
    range.scored = true;
  }
  FilteredGroups result;
  for (const auto& [group, range] : groups) {
    (range.lowest != range.highest ? result.kept : result.dropped).push_back(group);
  }
  for (const GroupMetric& sample : samples) {
    const Range& range = groups[sample.group];
    result.keep.push_back(range.lowest != range.highest);
  }
  return result;
}

absl::StatusOr<double> OverlongPenalty(const OverlongOptions& options, int64_t length) {
  if (options.buffer_length <= 0 || options.buffer_length > options.max_response_length) {
    return absl::InvalidArgumentError(absl::StrCat("overlong_buffer.len: is ", options.buffer_length,
                                                   ", must be above 0 and at most max_response_length ",
                                                   options.max_response_length));
  }
  if (!(options.penalty_factor >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("overlong_buffer.penalty_factor: is ", options.penalty_factor, ", must be 0 or more"));
  }
  const int64_t exceed = length - (options.max_response_length - options.buffer_length);
  if (exceed <= 0) return 0.0;
  return -static_cast<double>(exceed) / static_cast<double>(options.buffer_length) * options.penalty_factor;
}

}  // namespace sluice::engine
