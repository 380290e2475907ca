#include "controller/store/event_retention.h"

#include <gmock/gmock.h>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "controller/store/sqlite_store.h"

namespace sluice::controller {
namespace {

using ::sluice::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// `s`: a change of state or a note, `p`: progress; versions count from 1.
std::vector<EventSummary> Events(const std::string& kinds) {
  std::vector<EventSummary> events;
  for (const char kind : kinds) events.push_back({static_cast<int64_t>(events.size()) + 1, kind == 'p'});
  return events;
}

TEST(EventsToRemoveTest, TakesTheOldestProgressThenTheOldestOfTheRest) {
  EXPECT_THAT(EventsToRemove(Events("sspps"), 5), IsEmpty());
  EXPECT_THAT(EventsToRemove(Events(""), 2), IsEmpty());
  EXPECT_THAT(EventsToRemove(Events("spspsp"), 5), ElementsAre(2));
  EXPECT_THAT(EventsToRemove(Events("spspsp"), 4), ElementsAre(2, 4));
  // The last event stays, though it is progress: the next version is above it.
  EXPECT_THAT(EventsToRemove(Events("spspsp"), 3), ElementsAre(2, 4, 3));
  EXPECT_THAT(EventsToRemove(Events("spspsp"), 2), ElementsAre(2, 4, 3, 5));
  EXPECT_THAT(EventsToRemove(Events("sssss"), 3), ElementsAre(2, 3));
}

TEST(EventRetentionTest, ALongHistoryIsTrimmedAndStaysInOrder) {
  TempDir folder;
  const std::string path = folder.Join("store.db");
  const EventRetention retention = {.most = 20, .slack = 5};
  const absl::Time now = absl::FromUnixSeconds(1);
  std::string job_id;
  constexpr int kSteps = 100;
  for (const bool reopened : {false, true}) {
    ASSERT_OK_AND_ASSIGN(const auto store, SqliteStore::Open(path, nullptr, retention));
    if (!reopened) {
      job_id = store->AddJob({"", ""}, v1::JobSpec(), now)->job.job_id();
      ASSERT_OK(store->BeginAttempt(job_id, {}, {.time = now, .message = "admitted"}));
      // Another job is not trimmed for this one's events.
      ASSERT_OK(store->AddJob({"", ""}, v1::JobSpec(), now));
    }
    for (int step = 0; step < kSteps; ++step) {
      Happening happening;
      happening.time = now;
      happening.step.emplace().set_step(kSteps * reopened + step);
      ASSERT_OK(store->Append(job_id, {happening}, nullptr, nullptr));
      ASSERT_LE(store->EventsSince(job_id, 0, 1000)->size(), 25u);
    }
    ASSERT_OK_AND_ASSIGN(const auto events, store->EventsSince(job_id, 0, 1000));
    ASSERT_GE(events.size(), 20u);
    EXPECT_EQ(events[0].state(), v1::JOB_STATE_QUEUED);
    EXPECT_EQ(events[1].state(), v1::JOB_STATE_ADMITTED);
    EXPECT_FALSE(events[1].has_step());
    // The newest steps, without a gap.
    for (size_t i = 2; i < events.size(); ++i) {
      EXPECT_EQ(events[i].step().step(), static_cast<int64_t>(kSteps * (1 + reopened) - (events.size() - i)));
    }
    EXPECT_EQ(store->GetJob(job_id)->resource_version(), events.back().resource_version());
    EXPECT_EQ(store->EventsSince("job-2", 0, 1000)->size(), 1u);
  }
}

}  // namespace
}  // namespace sluice::controller
