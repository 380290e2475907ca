#include "common/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "absl/synchronization/notification.h"

namespace sluice {
namespace {

TEST(ThreadPoolTest, OneThreadRunsInOrderAndDrainsAtTheEnd) {
  std::vector<int> seen;
  {
    ThreadPool pool(1);
    for (int i = 0; i < 100; ++i) pool.Submit([&seen, i] { seen.push_back(i); });
  }
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

TEST(ThreadPoolTest, ThreadsRunSideBySide) {
  absl::Notification first, second;
  std::atomic<int> met = 0;
  {
    ThreadPool pool(2);  // with one thread these two would wait for each other for ever
    pool.Submit([&] { first.Notify(), second.WaitForNotification(), ++met; });
    pool.Submit([&] { second.Notify(), first.WaitForNotification(), ++met; });
  }
  EXPECT_EQ(met, 2);
}

}  // namespace
}  // namespace sluice
