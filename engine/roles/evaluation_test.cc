#include "engine/roles/evaluation.h"

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

TEST(EvaluationTest, PassAtKIsTheChanceOfOneRight) {
  EXPECT_DOUBLE_EQ(PassAtK(4, 1, 1), 0.25);
  EXPECT_DOUBLE_EQ(PassAtK(4, 1, 2), 0.5);  // 1 - C(3,2)/C(4,2) = 1 - 3/6
  EXPECT_DOUBLE_EQ(PassAtK(5, 2, 3), 0.9);  // 1 - C(3,3)/C(5,3) = 1 - 1/10
  EXPECT_DOUBLE_EQ(PassAtK(4, 0, 4), 0);
  EXPECT_DOUBLE_EQ(PassAtK(4, 1, 4), 1);
}

Answer Scored(std::optional<double> score, const std::string& extracted) {
  Answer answer;
  answer.score = score;
  answer.extracted = extracted;
  return answer;
}

std::map<std::string, double> Evaluate(const std::vector<Answer>& answers, int64_t n) {
  MetricSums sums;
  AddEvaluation(answers, n, &sums);
  return *sums.Reduce(**Communicator::Create({}));
}

TEST(EvaluationTest, GroupsOfAnswers) {
  // The first prompt: 7 is right and said by two of three; the second: 5 is right, but 4 has the majority.
  const auto numbers = Evaluate({Scored(1, "7"), Scored(0, "8"), Scored(1, "7"),  //
                                 Scored(0, "4"), Scored(1, "5"), Scored(0, "4")},
                                3);
  EXPECT_DOUBLE_EQ(numbers.at("val/score/mean"), 0.5);
  EXPECT_DOUBLE_EQ(numbers.at("val/score/best@3"), 1);
  EXPECT_DOUBLE_EQ(numbers.at("val/score/worst@3"), 0);
  EXPECT_DOUBLE_EQ(numbers.at("val/maj@3"), 0.5);
  EXPECT_DOUBLE_EQ(numbers.at("val/pass@1"), 0.5);
  EXPECT_DOUBLE_EQ(numbers.at("val/pass@2"), (1.0 + 2.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(numbers.at("val/pass@3"), 1);
  EXPECT_EQ(numbers.count("val/pass@4"), 0u);
}

TEST(EvaluationTest, FailedRewardsAreLeftOutAndWhatCannotBeReadIsWorthNothing) {
  const auto numbers = Evaluate({Scored(std::nullopt, ""), Scored(1, "7"),  //
                                 Scored(0, ""), Scored(0, "")},
                                2);
  EXPECT_DOUBLE_EQ(numbers.at("val/score/mean"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(numbers.at("val/maj@2"), 0.5);
  EXPECT_DOUBLE_EQ(numbers.at("val/pass@2"), 0) << "the only prompt with two scores";
  const auto unread = Evaluate({Scored(1, ""), Scored(0, "")}, 2);
  EXPECT_EQ(unread.count("val/maj@2"), 0u) << "the reward reads no answers";
}

}  // namespace
}  // namespace sluice::engine
