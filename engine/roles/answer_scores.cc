#include "engine/roles/answer_scores.h"

#include <cmath>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

// What algorithm.filter_groups.metric says of a scored answer: a number of the reward by its name or, where one reward
// alone gives it, without that reward's name before it. InvalidArgument: there is none.
absl::StatusOr<double> FilterValue(const RewardResult& sum, const std::string& metric) {
  if (metric == "score") return *sum.score;
  const auto found = sum.metrics.find(metric);
  if (found != sum.metrics.end()) return found->second;
  std::vector<double> matches;
  for (const auto& [name, value] : sum.metrics) {
    if (absl::EndsWith(name, "/" + metric)) matches.push_back(value);
  }
  if (matches.size() == 1) return matches[0];
  std::string known = "score";
  for (const auto& [name, value] : sum.metrics) absl::StrAppend(&known, ", ", name);
  return absl::InvalidArgumentError(
      absl::StrCat("algorithm.filter_groups.metric: the reward gives no number \"", metric, "\"; it gives ", known));
}

}  // namespace

absl::Status AddUpScores(absl::Span<const StageResults* const> stages, const std::string& filter_metric,
                         absl::Span<Answer> answers) {
  for (size_t i = 0; i < answers.size(); ++i) {
    RewardResult sum = RewardResult::Scored(0);
    for (const StageResults* stage : stages) {
      const RewardResult& result = (*stage)[i];
      if (!result.score.has_value()) {
        sum = RewardResult();
        break;
      }
      *sum.score += *result.score;
      sum.components.insert(sum.components.end(), result.components.begin(), result.components.end());
      sum.metrics.insert(result.metrics.begin(), result.metrics.end());
      if (sum.extracted.empty()) sum.extracted = result.extracted;
    }
    if (sum.score.has_value() && !std::isfinite(*sum.score)) sum = RewardResult();
    Answer& answer = answers[i];
    answer.score = sum.score;
    if (!filter_metric.empty() && sum.score.has_value()) {
      ASSIGN_OR_RETURN(answer.filter_value, FilterValue(sum, filter_metric));
    }
    answer.components = std::move(sum.components);
    answer.extracted = std::move(sum.extracted);
  }
  return absl::OkStatus();
}

std::vector<Answer> WithScoresOf(const StageResults& results, absl::Span<const Answer> answers) {
  std::vector<Answer> scored(answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    scored[i].place = answers[i].place;
    scored[i].sample = answers[i].sample;
    if (results.empty()) continue;
    scored[i].score = results[i].score;
    scored[i].components = results[i].components;
    scored[i].extracted = results[i].extracted;
  }
  return scored;
}

StageResults ScoresOf(absl::Span<const Answer> answers) {
  StageResults results(answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    results[i].score = answers[i].score;
    results[i].components = answers[i].components;
    results[i].extracted = answers[i].extracted;
  }
  return results;
}

}  // namespace sluice::engine
