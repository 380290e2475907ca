#include "controller/dataflow/results.h"

#include "common/testing/status_matchers.h"

namespace sluice::controller {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::RankStageResponse Step(int rank, double seconds, int64_t peak, double data_seconds) {
  v1::RankStageResponse answer;
  answer.set_rank(rank);
  v1::StepMetrics* step = answer.mutable_response()->mutable_train_batch();
  step->set_loss(1.5);
  step->set_seconds(seconds);
  step->set_peak_host_bytes(peak);
  (*step->mutable_phase_seconds())["data"] = data_seconds;
  return answer;
}

TEST(CombineTest, TakesRankZerosNumbersAndTheLargestTimesAndMemory) {
  ASSERT_OK_AND_ASSIGN(const v1::StageResponse combined,
                       Combine({Step(1, 2.0, 100, 0.1), Step(0, 1.0, 300, 0.4)}, AllRanks(2)));
  EXPECT_DOUBLE_EQ(combined.train_batch().loss(), 1.5);
  EXPECT_DOUBLE_EQ(combined.train_batch().seconds(), 2.0);
  EXPECT_EQ(combined.train_batch().peak_host_bytes(), 300);
  EXPECT_DOUBLE_EQ(combined.train_batch().phase_seconds().at("data"), 0.4);
}

TEST(CombineTest, WarningsOfAllRanksAreThereOnce) {
  v1::RankStageResponse first = Step(0, 1, 1, 1), second = Step(1, 1, 1, 1);
  first.mutable_response()->add_warnings("no room");
  second.mutable_response()->add_warnings("no room");
  second.mutable_response()->add_warnings("slow");
  ASSERT_OK_AND_ASSIGN(const v1::StageResponse both, Combine({second, first}, AllRanks(2)));
  EXPECT_THAT(both.warnings(), ElementsAre("rank 0: no room", "rank 1: slow"));
  ASSERT_OK_AND_ASSIGN(const v1::StageResponse alone, Combine({second}, {1}));
  EXPECT_THAT(alone.warnings(), ElementsAre("no room", "slow"));
}

TEST(CombineTest, AMissingOrDifferentAnswerIsAnError) {
  EXPECT_THAT(Combine({Step(0, 1, 1, 1)}, AllRanks(2)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("rank 1 gave no answer")));
  v1::RankStageResponse other;
  other.set_rank(1);
  other.mutable_response()->mutable_infer_batch();
  EXPECT_THAT(Combine({Step(0, 1, 1, 1), other}, AllRanks(2)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("rank 1 answered another")));
}

TEST(EtaEstimatorTest, NothingBeforeTheSecondStepThenTheMean) {
  EtaEstimator eta;
  absl::Time now = absl::FromUnixSeconds(0);
  eta.OnStep(now, 1, 11);
  EXPECT_FALSE(eta.seconds().has_value());
  eta.OnStep(now += absl::Seconds(2), 2, 11);
  EXPECT_DOUBLE_EQ(*eta.seconds(), 18.0);
  eta.OnStep(now += absl::Seconds(12), 3, 11);
  EXPECT_DOUBLE_EQ(*eta.seconds(), 8 * 3.0);  // the mean moves a tenth of the way from 2 to 12
  eta.OnStep(now += absl::Seconds(1), 11, 11);
  EXPECT_DOUBLE_EQ(*eta.seconds(), 0.0);
}

TEST(DescribeStepTest, IsOneLine) {
  v1::StepMetrics step;
  step.set_step(12);
  step.set_loss(1.23456);
  step.set_grad_norm(0.5);
  step.set_lr(1e-5);
  step.set_tokens(1000);
  step.set_seconds(0.5);
  EXPECT_EQ(DescribeStep(step, 300), "step 12 of 300, loss 1.2346, grad norm 0.5, lr 1e-05, 2000 tokens/s");
  step.set_skipped_nonfinite(true);
  EXPECT_THAT(DescribeStep(step, 300), HasSubstr("skipped"));
}

}  // namespace
}  // namespace sluice::controller
