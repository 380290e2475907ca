#include "engine/reward/rule_reward.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/reward/answer_text.h"
#include "engine/reward/gsm8k_rule.h"
#include "engine/reward/length_rule.h"
#include "engine/reward/math_dapo_rule.h"
#include "engine/reward/math_rule.h"
#include "engine/reward/pattern_match.h"

namespace sluice::engine {
namespace {

class RuleReward : public Reward {
 public:
  explicit RuleReward(RewardRule rule) : rule_(std::move(rule)) {}

  absl::StatusOr<std::vector<RewardResult>> Score(absl::Span<const RewardRequest> requests) override {
    std::vector<RewardResult> results;
    results.reserve(requests.size());
    for (const RewardRequest& request : requests) results.push_back(rule_(request));
    return results;
  }

 private:
  const RewardRule rule_;
};

RewardRule Gsm8kRule(const RewardOptionValues& options) {
  const std::string& name = options.Text("method");
  const Gsm8kMethod method = name == "strict"     ? Gsm8kMethod::kStrict
                             : name == "flexible" ? Gsm8kMethod::kFlexible
                                                  : Gsm8kMethod::kNumeric;
  return [method, score = options.Float("score"),
          format_score = options.Float("format_score")](const RewardRequest& request) {
    RewardResult result =
        RewardResult::Scored(ScoreGsm8k(request.solution, request.ground_truth, method, score, format_score));
    result.extracted = ExtractGsm8kAnswer(request.solution, method).value_or("");
    return result;
  };
}

RewardRule MathRule(const RewardOptionValues&) {
  return [](const RewardRequest& request) {
    return RewardResult::Scored(ScoreMath(request.solution, request.ground_truth));
  };
}

RewardRule MathDapoRule(const RewardOptionValues& options) {
  return [strict_box = options.Bool("strict_box")](const RewardRequest& request) {
    const MathDapoScore result = ScoreMathDapo(request.solution, request.ground_truth, strict_box);
    return RewardResult::Scored(result.score(), {{"acc", result.correct ? 1 : 0}});
  };
}

absl::StatusOr<RewardRule> FormatRule(const RewardOptionValues& options) {
  const int64_t limit = std::min<int64_t>(options.Int("match_limit"), std::numeric_limits<uint32_t>::max());
  ASSIGN_OR_RETURN(
      ResponsePattern pattern,
      ResponsePattern::Compile(options.Text("pattern"), options.Text("mode") == "full", static_cast<uint32_t>(limit)));
  return RewardRule([pattern = std::move(pattern), score = options.Float("score"),
                     else_score = options.Float("else_score")](const RewardRequest& request) {
    const absl::StatusOr<bool> matches = pattern.Matches(request.solution);
    if (!matches.ok()) return RewardResult::Failed(RewardError::kTimeout, std::string(matches.status().message()));
    return RewardResult::Scored(*matches ? score : else_score);
  });
}

RewardRule ExactMatchRule(const RewardOptionValues& options) {
  return [strip = options.Bool("strip"), ignore_case = options.Bool("ignore_case")](const RewardRequest& request) {
    std::string_view given = request.solution;
    std::string_view truth = request.ground_truth;
    if (strip) {
      given = StripSpace(given);
      truth = StripSpace(truth);
    }
    const auto folded = [&](char c) {
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const bool equal = std::equal(given.begin(), given.end(), truth.begin(), truth.end(),
                                  [&](char a, char b) { return folded(a) == folded(b); });
    return RewardResult::Scored(equal ? 1 : 0);
  };
}

RewardRule LengthRule(const RewardOptionValues& options) {
  const auto score = options.Text("mode") == "overlong" ? OverlongScore : TargetLengthScore;
  return [score, max_tokens = options.Int("max_tokens"), buffer = options.Int("buffer"),
          factor = options.Float("factor")](const RewardRequest& request) {
    return RewardResult::Scored(score(request.response_tokens, max_tokens, buffer, factor));
  };
}

}  // namespace

std::unique_ptr<Reward> MakeRuleReward(RewardRule rule) { return std::make_unique<RuleReward>(std::move(rule)); }

absl::StatusOr<RewardRule> MakeRule(const std::string& kind, const RewardOptionValues& options) {
  if (kind == "gsm8k") return Gsm8kRule(options);
  if (kind == "math") return MathRule(options);
  if (kind == "math_dapo") return MathDapoRule(options);
  if (kind == "format") return FormatRule(options);
  if (kind == "exact_match") return ExactMatchRule(options);
  if (kind == "length") return LengthRule(options);
  if (kind == "none") return RewardRule([](const RewardRequest&) { return RewardResult::Scored(0); });
  return absl::InvalidArgumentError(absl::StrCat("reward ", kind, " is not a rule"));
}

}  // namespace sluice::engine
