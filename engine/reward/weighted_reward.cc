#include "engine/reward/weighted_reward.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"

namespace sluice::engine {

WeightedReward::WeightedReward(std::vector<WeightedPart> parts) : parts_(std::move(parts)) {}

absl::StatusOr<std::vector<RewardResult>> WeightedReward::Score(absl::Span<const RewardRequest> requests) {
  std::vector<RewardResult> sums(requests.size(), RewardResult::Scored(0));
  for (const WeightedPart& part : parts_) {
    absl::StatusOr<std::vector<RewardResult>> scored = part.reward->Score(requests);
    if (!scored.ok()) return Annotate(scored.status(), part.name);
    for (size_t i = 0; i < requests.size(); ++i) {
      RewardResult& sum = sums[i];
      const RewardResult& result = (*scored)[i];
      if (sum.error != RewardError::kNone) continue;
      if (!result.score.has_value()) {
        sum = RewardResult::Failed(result.error, absl::StrCat(part.name, ": ", result.message));
        continue;
      }
      *sum.score += part.weight * *result.score;
      sum.components.push_back(*result.score);
      if (sum.extracted.empty()) sum.extracted = result.extracted;
      for (const auto& [name, value] : result.metrics) sum.metrics[absl::StrCat(part.name, "/", name)] = value;
      sum.metrics[absl::StrCat(part.name, "/score")] = *result.score;
    }
  }
  for (RewardResult& sum : sums) {
    if (sum.score.has_value() && !std::isfinite(*sum.score)) {
      sum = RewardResult::Failed(RewardError::kBadValue, "the weighted sum of the rewards is not finite");
    }
  }
  return sums;
}

absl::Status WeightedReward::CheckDataSource(std::string_view data_source) const {
  for (const WeightedPart& part : parts_) {
    if (const absl::Status status = part.reward->CheckDataSource(data_source); !status.ok()) {
      return Annotate(status, part.name);
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
