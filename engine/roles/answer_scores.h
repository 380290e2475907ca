// What the stages that score made of a step's answers, and how their scores are added up.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/reward/reward.h"
#include "engine/roles/answer_batch.h"

namespace sluice::engine {

// One stage's results, as many as there are answers, in their order.
using StageResults = std::vector<RewardResult>;

// Puts the sum of the stages' scores, in their order, into the answers, with the components of all of them, and what
// the first of them read that read anything. Where a stage has no score, or the sum is not finite, the answer has none.
// `filter_metric`: algorithm.filter_groups.metric, whose value becomes Answer::filter_value; empty: groups are not
// filtered. REQUIRES: each stage has a result for each answer.
// InvalidArgument: no stage gives a number of that name.
absl::Status AddUpScores(absl::Span<const StageResults* const> stages, const std::string& filter_metric,
                         absl::Span<Answer> answers);

// Answers that have nothing but the place and number of those given, and a stage's score, components and reading, as
// they go between pools; and the way back. No results: those without a score.
std::vector<Answer> WithScoresOf(const StageResults& results, absl::Span<const Answer> answers);
StageResults ScoresOf(absl::Span<const Answer> answers);

}  // namespace sluice::engine
