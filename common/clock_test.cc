#include "common/clock.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(FakeClockTest, MovesOnlyWhenTold) {
  FakeClock clock(absl::FromUnixSeconds(7));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(7));
  clock.Advance(absl::Seconds(3));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(10));
}

TEST(RealClockTest, WaitEndsAtAPastDeadline) {
  RealClock clock;
  absl::Mutex mutex;
  absl::CondVar changed;
  absl::MutexLock lock(&mutex);
  clock.WaitUntil(&mutex, &changed, clock.Now() - absl::Seconds(1));
  EXPECT_GT(clock.Now(), absl::FromUnixSeconds(1'000'000'000));
}

}  // namespace
}  // namespace sluice
