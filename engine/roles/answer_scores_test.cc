#include "engine/roles/answer_scores.h"

#include <limits>

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RewardResult Scored(double score, std::map<std::string, double> metrics = {}, std::string extracted = "") {
  RewardResult result = RewardResult::Scored(score, std::move(metrics));
  result.components = {score};
  result.extracted = std::move(extracted);
  return result;
}

TEST(AnswerScoresTest, StagesAreAddedUpInTheirOrder) {
  const StageResults right = {Scored(1, {{"right/acc", 1}}), Scored(0.25, {{"right/acc", 0}}, "7")};
  const StageResults form = {Scored(0.5, {{"form/score", 0.5}}, "x"), Scored(-1, {{"form/score", -1}}, "y")};
  std::vector<Answer> answers(2);
  ASSERT_OK(AddUpScores({&right, &form}, "acc", absl::MakeSpan(answers)));
  EXPECT_EQ(answers[0].score, 1.5);
  EXPECT_THAT(answers[0].components, ElementsAre(1, 0.5));
  EXPECT_EQ(answers[0].extracted, "x") << "the first that read anything";
  EXPECT_EQ(answers[0].filter_value, 1);
  EXPECT_EQ(answers[1].score, -0.75);
  EXPECT_EQ(answers[1].extracted, "7");
  EXPECT_EQ(answers[1].filter_value, 0);
  ASSERT_OK(AddUpScores({&right, &form}, "score", absl::MakeSpan(answers)));
  EXPECT_EQ(answers[0].filter_value, 1.5) << "the sum";
}

TEST(AnswerScoresTest, WhereOneStageHasNoScoreThereIsNone) {
  const double largest = std::numeric_limits<double>::max();
  const StageResults first = {RewardResult::Failed(RewardError::kTimeout, "too slow"), Scored(1, {}, "1"),
                              Scored(largest)};
  const StageResults second = {Scored(2), RewardResult::Failed(RewardError::kCrashed, "gone"), Scored(largest)};
  std::vector<Answer> answers(3);
  ASSERT_OK(AddUpScores({&first, &second}, "acc", absl::MakeSpan(answers)));
  for (const Answer& answer : answers) {
    EXPECT_FALSE(answer.score.has_value());
    EXPECT_FALSE(answer.filter_value.has_value());
    EXPECT_THAT(answer.components, IsEmpty());
    EXPECT_THAT(answer.extracted, IsEmpty());
  }
}

TEST(AnswerScoresTest, AMetricThatNoStageGivesIsAnError) {
  const StageResults first = {Scored(1, {{"a/acc", 1}})}, second = {Scored(1, {{"b/acc", 1}})};
  std::vector<Answer> answers(1);
  EXPECT_THAT(
      AddUpScores({&first, &second}, "acc", absl::MakeSpan(answers)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gives no number \"acc\"; it gives score, a/acc, b/acc")));
  ASSERT_OK(AddUpScores({&first, &second}, "b/acc", absl::MakeSpan(answers)));
  EXPECT_EQ(answers[0].filter_value, 1);
}

TEST(AnswerScoresTest, ScoresGoToOtherPoolsAndComeBack) {
  std::vector<Answer> answers(2);
  answers[1].place = 3;
  answers[1].sample = 7;
  answers[1].text = "stays here";
  const StageResults results = {RewardResult::Failed(RewardError::kRaised, "no"), Scored(0.5, {{"n", 1}}, "42")};
  const std::vector<Answer> going = WithScoresOf(results, answers);
  EXPECT_EQ(going[1].place, 3);
  EXPECT_EQ(going[1].sample, 7u);
  EXPECT_THAT(going[1].text, IsEmpty());
  const StageResults back = ScoresOf(going);
  EXPECT_FALSE(back[0].score.has_value());
  EXPECT_EQ(back[1].score, 0.5);
  EXPECT_THAT(back[1].components, ElementsAre(0.5));
  EXPECT_EQ(back[1].extracted, "42");
  EXPECT_FALSE(WithScoresOf({}, answers)[1].score.has_value()) << "nothing came yet";
}

}  // namespace
}  // namespace sluice::engine
