// Several rewards of one response, added up.
//
// The score is Σ weight_i · score_i. Each part's metrics are there with its name and a slash in front, and its score,
// before the weight, as "<name>/score" and in `components`; what was read out of the response is the first part's that
// read anything. Where a part has no score the sum has none either: the result has the error of the first such part, in
// the order given, and a message that begins with its name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/reward/reward.h"

namespace sluice::engine {

struct WeightedPart {
  std::string name;
  double weight = 1.0;  // finite
  std::unique_ptr<Reward> reward;
};

// Every part scores every request, one part after another. Errors of a part begin with its name.
// REQUIRES: at least one part, names differ.
class WeightedReward : public Reward {
 public:
  explicit WeightedReward(std::vector<WeightedPart> parts);

  absl::StatusOr<std::vector<RewardResult>> Score(absl::Span<const RewardRequest> requests) override;
  absl::Status CheckDataSource(std::string_view data_source) const override;

 private:
  const std::vector<WeightedPart> parts_;
};

}  // namespace sluice::engine
