#include "tools/cli/progress_text.h"

#include <gmock/gmock.h>

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::Progress HalfWay() {
  v1::Progress progress;
  progress.set_step(5);
  progress.set_total_steps(10);
  progress.set_eta_seconds(80);
  v1::StepMetrics* step = progress.mutable_last_step();
  step->set_loss(1.25);
  step->set_grad_norm(2.5);
  step->set_lr(1e-4);
  step->set_tokens(400);
  step->set_seconds(2);
  step->set_model_flops(1e12);
  return progress;
}

TEST(ProgressBarTest, ShowsEverythingWhereThereIsRoom) {
  EXPECT_EQ(
      ProgressBar(HalfWay(), 200),
      "[==========>         ] 5/10  loss 1.2500  grad_norm 2.5  lr 0.0001  tokens/s 200  TFLOP/s 0.5  left 1m20s");
}

TEST(ProgressBarTest, LeavesWholeFieldsOutWhereThereIsNot) {
  EXPECT_EQ(ProgressBar(HalfWay(), 100),
            "[==========>         ] 5/10  loss 1.2500  grad_norm 2.5  lr 0.0001  tokens/s 200  left 1m20s");
  EXPECT_EQ(ProgressBar(HalfWay(), 59), "[==========>         ] 5/10  loss 1.2500  left 1m20s");
  EXPECT_EQ(ProgressBar(HalfWay(), 45), "[==========>         ] 5/10  loss 1.2500");
  EXPECT_EQ(ProgressBar(HalfWay(), 30), "[==========>         ] 5/10");
  EXPECT_EQ(ProgressBar(HalfWay(), 15), "[====>   ] 5/10");
  EXPECT_EQ(ProgressBar(HalfWay(), 9), "5/10");
  EXPECT_EQ(ProgressBar(HalfWay(), 2), "5/");
  for (int columns = -1; columns < 130; ++columns) {
    EXPECT_LE(ProgressBar(HalfWay(), columns).size(), static_cast<size_t>(std::max(0, columns)));
  }
}

TEST(ProgressBarTest, ShowsHowOftenTheBetterAnswerIsPreferred) {
  v1::Progress progress = HalfWay();
  (*progress.mutable_last_step()->mutable_metrics())["rewards/accuracies"] = 0.9375;
  EXPECT_THAT(ProgressBar(progress, 200), HasSubstr("5/10  loss 1.2500  accuracy 0.938  grad_norm"));
}

TEST(ProgressBarTest, IsEmptyAtFirstAndFullAtTheEnd) {
  v1::Progress progress;
  progress.set_total_steps(10);
  EXPECT_EQ(ProgressBar(progress, 80), "[>                   ] 0/10");
  progress.set_step(10);
  EXPECT_EQ(ProgressBar(progress, 80), "[====================] 10/10");
}

TEST(EraseBarTest, TakesBackEveryRowThatTheBarStandsIn) {
  EXPECT_EQ(EraseBar(59, 60), "\r\033[J");
  EXPECT_EQ(EraseBar(60, 60), "\r\033[J");
  EXPECT_EQ(EraseBar(61, 60), "\r\033[1A\033[J");
  EXPECT_EQ(EraseBar(59, 20), "\r\033[2A\033[J");
  EXPECT_EQ(EraseBar(5, 1), "\r\033[4A\033[J");
}

TEST(EventLineTest, AStepIsOneLineWithAllItsNumbers) {
  v1::WatchJobResponse update;
  *update.mutable_job()->mutable_progress() = HalfWay();
  *update.mutable_event()->mutable_step() = HalfWay().last_step();
  update.mutable_event()->mutable_step()->set_step(4);
  EXPECT_THAT(EventLine(update), AllOf(StartsWith("step 4/10  loss 1.2500  grad_norm"), EndsWith("left 1m20s")));
  update.mutable_event()->mutable_step()->set_skipped_nonfinite(true);
  EXPECT_THAT(EventLine(update), HasSubstr("(skipped: not finite)"));
}

TEST(EventLineTest, AWarningIsOneWhateverTheState) {
  v1::WatchJobResponse update;
  update.mutable_event()->set_state(v1::JOB_STATE_RUNNING);
  update.mutable_event()->set_message("rank 1: no room");
  EXPECT_THAT(EventLine(update), Not(StartsWith("warning")));
  update.mutable_event()->set_warning(true);
  EXPECT_EQ(EventLine(update), "warning: rank 1: no room");
}

TEST(SummaryTest, TheLossesStandThereOnlyForAJobThatSucceeded) {
  v1::Job job;
  job.set_job_id("job-1");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  *job.mutable_progress() = HalfWay();
  job.mutable_progress()->set_first_val_loss(2);
  job.mutable_progress()->set_last_val_loss(1);
  EXPECT_EQ(Summary(job), "job-1 SUCCEEDED after 5 steps\nvalidation loss 2.0000 before, 1.0000 after");
  job.set_state(v1::JOB_STATE_FAILED);
  job.mutable_failure()->set_reason(v1::FAILURE_REASON_OUT_OF_MEMORY);
  job.mutable_failure()->set_message("rank 0 ran out of memory");
  EXPECT_EQ(Summary(job), "job-1 FAILED (OUT_OF_MEMORY): rank 0 ran out of memory");
  EXPECT_THAT(Summary(job), Not(HasSubstr("validation")));
}

TEST(SummaryTest, ScoresOfReinforcementLearning) {
  v1::Job job;
  job.set_job_id("job-1");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.mutable_progress()->set_step(5);
  job.mutable_progress()->set_first_val_score(0.25);
  job.mutable_progress()->set_last_val_score(0.75);
  EXPECT_EQ(Summary(job), "job-1 SUCCEEDED after 5 steps\nvalidation score 0.2500 before, 0.7500 after");
  v1::WatchJobResponse update;
  v1::ValidationMetrics* validation = update.mutable_event()->mutable_validation();
  validation->set_step(5);
  validation->set_samples(64);
  (*validation->mutable_metrics())["val/score/mean"] = 0.75;
  EXPECT_THAT(EventLine(update), StartsWith("validation after step 5  score 0.7500  (64 answers"));
  validation->clear_metrics();
  EXPECT_THAT(EventLine(update), StartsWith("validation after step 5  none of the 64 answers has a score"));
  validation->set_loss(1.5);
  EXPECT_THAT(EventLine(update), StartsWith("validation after step 5  loss 1.5000  (64 rows"));
}

}  // namespace
}  // namespace sluice::cli
