#include "controller/scheduler/restart_backoff.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice::controller {
namespace {

struct Case {
  int32_t losses;
  absl::Duration delay;
};

TEST(RestartBackoffTest, DoublesUpToTheLongest) {
  const RestartBackoff backoff = {.spread = 0};
  for (const Case& row :
       {Case{1, absl::Seconds(1)}, Case{2, absl::Seconds(2)}, Case{3, absl::Seconds(4)}, Case{9, absl::Seconds(256)},
        Case{10, absl::Seconds(300)}, Case{11, absl::Seconds(300)}, Case{100'000, absl::Seconds(300)}}) {
    EXPECT_EQ(RestartDelay(row.losses, "job-1", row.losses, backoff), row.delay) << row.losses;
  }
}

TEST(RestartBackoffTest, TheFactorAndTheFirstWaitAreOptions) {
  const RestartBackoff backoff = {.first = absl::Seconds(3), .factor = 3, .longest = absl::Seconds(20), .spread = 0};
  EXPECT_EQ(RestartDelay(1, "job-1", 1, backoff), absl::Seconds(3));
  EXPECT_EQ(RestartDelay(2, "job-1", 2, backoff), absl::Seconds(9));
  EXPECT_EQ(RestartDelay(3, "job-1", 3, backoff), absl::Seconds(20));
}

TEST(RestartBackoffTest, AFirstWaitOfZeroNeverWaits) {
  EXPECT_EQ(RestartDelay(7, "job-1", 7, {.first = absl::ZeroDuration()}), absl::ZeroDuration());
}

TEST(RestartBackoffTest, JobsAreSpreadAndEachIsAlwaysTheSame) {
  const RestartBackoff backoff = {.first = absl::Seconds(100)};
  std::set<absl::Duration> delays;
  absl::Duration sum;
  for (int job = 0; job < 200; ++job) {
    const std::string job_id = "job-" + std::to_string(job);
    const absl::Duration delay = RestartDelay(1, job_id, 1, backoff);
    EXPECT_EQ(RestartDelay(1, job_id, 1, backoff), delay);
    EXPECT_GE(delay, absl::Seconds(80));
    EXPECT_LT(delay, absl::Seconds(120));
    delays.insert(delay);
    sum += delay;
  }
  EXPECT_GT(delays.size(), 190u);
  EXPECT_NEAR(absl::ToDoubleSeconds(sum / 200), 100, 3);
  EXPECT_NE(RestartDelay(1, "job-1", 1, backoff), RestartDelay(1, "job-1", 2, backoff));
}

}  // namespace
}  // namespace sluice::controller
