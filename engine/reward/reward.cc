#include "engine/reward/reward.h"

#include <utility>

namespace sluice::engine {

std::string_view RewardErrorName(RewardError error) {
  switch (error) {
    case RewardError::kNone:
      return "none";
    case RewardError::kTimeout:
      return "timeout";
    case RewardError::kCrashed:
      return "crashed";
    case RewardError::kRaised:
      return "raised";
    case RewardError::kBadValue:
      return "bad_value";
    case RewardError::kUnavailable:
      return "unavailable";
  }
  return "unknown";
}

RewardResult RewardResult::Scored(double score, std::map<std::string, double> metrics) {
  RewardResult result;
  result.score = score;
  result.metrics = std::move(metrics);
  return result;
}

RewardResult RewardResult::Failed(RewardError error, std::string message) {
  RewardResult result;
  result.error = error;
  result.message = std::move(message);
  return result;
}

absl::Status Reward::CheckDataSource(std::string_view) const { return absl::OkStatus(); }

RewardErrorCounts CountErrors(absl::Span<const RewardResult> results) {
  RewardErrorCounts counts = {};
  for (const RewardResult& result : results) ++counts[static_cast<int>(result.error)];
  return counts;
}

}  // namespace sluice::engine
