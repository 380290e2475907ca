#include "engine/roles/evaluation.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice::engine {
namespace {

// The score of what most of the group say; nothing said is worth 0.
double MajorityScore(absl::Span<const Answer> group) {
  std::map<std::string, int64_t> votes;
  for (const Answer& answer : group) {
    if (!answer.extracted.empty()) ++votes[answer.extracted];
  }
  const Answer* winner = nullptr;
  for (const Answer& answer : group) {
    if (answer.extracted.empty() || !answer.score.has_value()) continue;
    if (winner == nullptr || votes[answer.extracted] > votes[winner->extracted]) winner = &answer;
  }
  return winner == nullptr ? 0 : *winner->score;
}

}  // namespace

double PassAtK(int64_t n, int64_t c, int64_t k) {
  if (n - c < k) return 1;
  double none = 1;
  for (int64_t i = n - c + 1; i <= n; ++i) none *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - none;
}

void AddEvaluation(absl::Span<const Answer> answers, int64_t n, MetricSums* metrics) {
  const bool extracts =
      std::any_of(answers.begin(), answers.end(), [](const Answer& a) { return !a.extracted.empty(); });
  for (size_t begin = 0; begin + static_cast<size_t>(n) <= answers.size(); begin += static_cast<size_t>(n)) {
    const absl::Span<const Answer> group = answers.subspan(begin, static_cast<size_t>(n));
    std::vector<double> scores;
    for (const Answer& answer : group) {
      if (answer.score.has_value()) scores.push_back(*answer.score);
    }
    if (scores.empty()) continue;
    for (const double score : scores) metrics->AddMean("val/score/mean", score);
    const auto scored = static_cast<int64_t>(scores.size());
    const int64_t right = std::count_if(scores.begin(), scores.end(), [](double score) { return score > 0; });
    for (int64_t k = 1; k <= n; k = k < n && 2 * k > n ? n : 2 * k) {
      if (k <= scored) metrics->AddMean(absl::StrCat("val/pass@", k), PassAtK(scored, right, k));
    }
    if (extracts) metrics->AddMean(absl::StrCat("val/maj@", n), MajorityScore(group));
    if (n == 1) continue;
    metrics->AddMean(absl::StrCat("val/score/best@", n), *std::max_element(scores.begin(), scores.end()));
    metrics->AddMean(absl::StrCat("val/score/worst@", n), *std::min_element(scores.begin(), scores.end()));
  }
}

}  // namespace sluice::engine
