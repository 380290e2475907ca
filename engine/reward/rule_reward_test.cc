#include "engine/reward/rule_reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "engine/reward/reward_factory.h"
#include "engine/reward/source_reward.h"
#include "engine/reward/weighted_reward.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

RewardResult ScoreOne(Reward& reward, const RewardRequest& request) {
  absl::StatusOr<std::vector<RewardResult>> results = reward.Score({&request, 1});
  EXPECT_OK(results);
  return results.ok() ? results->at(0) : RewardResult{};
}

TEST(RewardFactoryTest, EveryRuleOfTheTableIsMade) {
  for (const RewardKind& kind : RewardKinds()) {
    if (kind.name == "python" || kind.name == "remote" || kind.name == "model") continue;  // their own tests make them
    SCOPED_TRACE(kind.name);
    RewardSpec spec = {.kind = std::string(kind.name)};
    for (const RewardOption& option : kind.options) {
      if (option.required) spec.options[std::string(option.name)] = "1";
    }
    ASSERT_OK_AND_ASSIGN(const auto reward, MakeSingleReward(spec));
    const RewardResult result =
        ScoreOne(*reward, {.data_source = "openai/gsm8k", .solution = "1", .ground_truth = "1"});
    EXPECT_TRUE(result.score.has_value()) << result.message;
  }
}

TEST(RewardFactoryTest, RefusesWhatCannotBeMade) {
  EXPECT_THAT(MakeReward({}), StatusIs(kInvalid, HasSubstr("no reward")));
  EXPECT_THAT(MakeReward(std::vector<RewardSpec>{{.kind = "format", .options = {{"pattern", "(a"}}}}),
              StatusIs(kInvalid, AllOf(HasSubstr("rewards[0] (format): pattern"), HasSubstr("at byte 2"))));
}

TEST(RuleRewardTest, FormatMatchesTheWholeOrAPart) {
  ASSERT_OK_AND_ASSIGN(const auto full, MakeSingleReward({.kind = "format", .options = {{"pattern", "<a>.*</a>"}}}));
  EXPECT_EQ(ScoreOne(*full, {.solution = "<a>two\nlines</a>"}).score, 1);
  EXPECT_EQ(ScoreOne(*full, {.solution = "<a>x</a>\n"}).score, 0);
  EXPECT_EQ(ScoreOne(*full, {.solution = "\xff<a>"}).score, 0);
  ASSERT_OK_AND_ASSIGN(
      const auto part,
      MakeSingleReward(
          {.kind = "format",
           .options = {{"pattern", "\\bé+\\b"}, {"mode", "search"}, {"score", "0.5"}, {"else_score", "-1"}}}));
  EXPECT_EQ(ScoreOne(*part, {.solution = "an éé there"}).score, 0.5);
  EXPECT_EQ(ScoreOne(*part, {.solution = "an ééa there"}).score, -1);
}

// (a+)+b tries 2^n ways to split n letters: bounded by steps, and an error in place of a score.
TEST(RuleRewardTest, AnExplodingPatternIsAnError) {
  ASSERT_OK_AND_ASSIGN(const auto reward, MakeSingleReward({.kind = "format", .options = {{"pattern", "(a+)+b|c"}}}));
  const RewardResult result = ScoreOne(*reward, {.solution = std::string(60, 'a') + "!"});
  EXPECT_EQ(result.error, RewardError::kTimeout);
  EXPECT_FALSE(result.score.has_value());
  EXPECT_THAT(result.message, AllOf(HasSubstr("61 bytes"), HasSubstr("match_limit")));
  EXPECT_EQ(ScoreOne(*reward, {.solution = "c"}).score, 1);
}

TEST(RuleRewardTest, ExactMatchAndLength) {
  ASSERT_OK_AND_ASSIGN(const auto plain, MakeSingleReward({.kind = "exact_match"}));
  EXPECT_EQ(ScoreOne(*plain, {.solution = " Yes\n", .ground_truth = "Yes"}).score, 1);
  EXPECT_EQ(ScoreOne(*plain, {.solution = "yes", .ground_truth = "Yes"}).score, 0);
  EXPECT_EQ(ScoreOne(*plain, {.solution = "Yes, sir", .ground_truth = "Yes"}).score, 0);
  ASSERT_OK_AND_ASSIGN(const auto loose, MakeSingleReward({.kind = "exact_match",
                                                           .options = {{"ignore_case", "true"}, {"strip", "false"}}}));
  EXPECT_EQ(ScoreOne(*loose, {.solution = "yes", .ground_truth = "Yes"}).score, 1);
  EXPECT_EQ(ScoreOne(*loose, {.solution = "yes ", .ground_truth = "Yes"}).score, 0);
  ASSERT_OK_AND_ASSIGN(const auto length,
                       MakeSingleReward({.kind = "length", .options = {{"max_tokens", "100"}, {"buffer", "20"}}}));
  EXPECT_EQ(ScoreOne(*length, {.response_tokens = 90}).score, -0.5);
}

TEST(SourceRewardTest, ChoosesTheRuleByTheDataSource) {
  ASSERT_OK_AND_ASSIGN(const auto reward, MakeSourceReward("mine = math, openai/gsm8k=exact_match"));
  EXPECT_EQ(ScoreOne(*reward, {.data_source = "mine", .solution = "\\boxed{.5}", .ground_truth = "1/2"}).score, 1);
  EXPECT_EQ(ScoreOne(*reward, {.data_source = "openai/gsm8k", .solution = "5", .ground_truth = "5"}).score, 1);
  EXPECT_EQ(ScoreOne(*reward, {.data_source = "arithmetic", .solution = "It is 5.", .ground_truth = "5"}).score, 1);
  EXPECT_EQ(ScoreOne(*reward, {.data_source = "lighteval/MATH", .solution = "5", .ground_truth = "5"}).score, 0);
  const RewardResult aime =
      ScoreOne(*reward, {.data_source = "aime2024", .solution = "Answer: 5", .ground_truth = "5"});
  EXPECT_EQ(aime.score, 1);
  EXPECT_THAT(aime.metrics, ElementsAre(Pair("acc", 1)));
}

TEST(SourceRewardTest, NamesASourceWithoutARule) {
  ASSERT_OK_AND_ASSIGN(const auto reward, MakeSourceReward(""));
  const auto names_it = StatusIs(kInvalid, AllOf(HasSubstr("\"openai/gsm9k\""), HasSubstr("openai/gsm8k, arithmetic")));
  EXPECT_THAT(reward->CheckDataSource("openai/gsm9k"), names_it);
  EXPECT_OK(reward->CheckDataSource("openai/gsm8k"));
  const RewardRequest requests[] = {{.data_source = "arithmetic"}, {.data_source = "openai/gsm9k"}};
  EXPECT_THAT(reward->Score(requests), names_it);
  EXPECT_THAT(MakeSourceReward("mine"), StatusIs(kInvalid, HasSubstr("data_source=kind")));
  EXPECT_THAT(MakeSourceReward("mine=gsm9k"), StatusIs(kInvalid, HasSubstr("sources: mine: unknown kind")));
  EXPECT_THAT(MakeSourceReward("mine=length"), StatusIs(kInvalid, HasSubstr("max_tokens")));
  EXPECT_THAT(MakeSourceReward("mine=auto"), StatusIs(kInvalid, HasSubstr("auto is not a rule")));
}

TEST(RewardFactoryTest, ARewardModelIsMadeByTheCaller) {
  const std::vector<RewardSpec> specs = {{.kind = "model", .name = "liked", .options = {{"path", "/rm"}}},
                                         {.kind = "none"}};
  EXPECT_THAT(MakeReward(specs), StatusIs(kInvalid, HasSubstr("rewards[0] (liked): a reward model runs in an engine")));
  const auto make_model = [](const RewardSpec& spec) -> absl::StatusOr<std::unique_ptr<Reward>> {
    EXPECT_EQ(spec.options.at("path"), "/rm");
    return MakeRuleReward([](const RewardRequest&) { return RewardResult::Scored(2.5); });
  };
  ASSERT_OK_AND_ASSIGN(const auto reward, MakeReward(specs, make_model));
  EXPECT_EQ(ScoreOne(*reward, {.solution = "x"}).score, 2.5);
}

TEST(WeightedRewardTest, AddsUpAndKeepsTheParts) {
  ASSERT_OK_AND_ASSIGN(
      const auto reward,
      MakeReward(std::vector<RewardSpec>{{.kind = "math_dapo", .name = "answer", .weight = 2},
                                         {.kind = "format", .weight = 0.5, .options = {{"pattern", "Answer.*"}}}}));
  const RewardResult result = ScoreOne(*reward, {.solution = "Answer: 5", .ground_truth = "6"});
  EXPECT_EQ(result.score, -1.5);
  EXPECT_EQ(result.components, (std::vector<double>{-1, 1}));
  EXPECT_THAT(result.metrics,
              UnorderedElementsAre(Pair("answer/score", -1), Pair("answer/acc", 0), Pair("format/score", 1)));
}

TEST(WeightedRewardTest, APartWithoutScoreTakesTheSumAway) {
  std::vector<WeightedPart> parts;
  parts.push_back({"good", 1, MakeRuleReward([](const RewardRequest&) { return RewardResult::Scored(1); })});
  parts.push_back({"slow", 1, MakeRuleReward([](const RewardRequest& request) {
                     if (request.solution == "hang") return RewardResult::Failed(RewardError::kTimeout, "10s");
                     return RewardResult::Scored(3, {{"score", 9}, {"x", 2}});
                   })});
  parts.push_back({"bad", 1, MakeRuleReward([](const RewardRequest& request) {
                     if (request.solution == "hang") return RewardResult::Failed(RewardError::kRaised, "no");
                     return RewardResult::Scored(0);
                   })});
  WeightedReward reward(std::move(parts));
  const RewardRequest requests[] = {{.solution = "hang"}, {.solution = "go"}};
  ASSERT_OK_AND_ASSIGN(const auto results, reward.Score(requests));
  EXPECT_FALSE(results[0].score.has_value());
  EXPECT_EQ(results[0].error, RewardError::kTimeout);
  EXPECT_EQ(results[0].message, "slow: 10s");
  EXPECT_TRUE(results[0].metrics.empty());
  EXPECT_TRUE(results[0].components.empty());
  EXPECT_EQ(results[1].score, 4);
  EXPECT_EQ(results[1].metrics.at("slow/score"), 3);
  EXPECT_EQ(results[1].metrics.at("slow/x"), 2);
  const RewardErrorCounts counts = CountErrors(results);
  EXPECT_EQ(counts[static_cast<int>(RewardError::kNone)], 1);
  EXPECT_EQ(counts[static_cast<int>(RewardError::kTimeout)], 1);
}

TEST(WeightedRewardTest, ErrorsOfAPartBeginWithItsName) {
  ASSERT_OK_AND_ASSIGN(const auto reward, MakeReward(std::vector<RewardSpec>{{.kind = "auto", .name = "rules"}}));
  const RewardRequest request = {.data_source = "other"};
  EXPECT_THAT(reward->Score({&request, 1}), StatusIs(kInvalid, HasSubstr("rules: no rule belongs")));
  EXPECT_THAT(reward->CheckDataSource("other"), StatusIs(kInvalid, HasSubstr("rules: no rule belongs")));
}

}  // namespace
}  // namespace sluice::engine
