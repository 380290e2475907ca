// STORE-1 under kill -9: a child process writes and says through a pipe what was acknowledged; it is killed at a random
// moment; what it said is there when the store is opened again, and nothing is there by half.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "controller/store/sqlite_store.h"

namespace sluice::controller {
namespace {

using ::sluice::testing::StatusIs;
using ::sluice::testing::TempDir;
using ::testing::HasSubstr;

// One acknowledgement: a job was added (step 0) or its progress reached a step.
struct Acknowledged {
  int64_t number;
  int64_t step;
};

constexpr int64_t kStepsPerJob = 5;

[[noreturn]] void WriteForEver(const std::string& path, int pipe_fd) {
  auto store = SqliteStore::Open(path);
  if (!store.ok()) _exit(1);
  const absl::Time now = absl::FromUnixSeconds(1);
  for (int64_t i = 0;; ++i) {
    v1::JobSpec spec;
    spec.set_name("run");
    const auto added = (*store)->AddJob({"", std::to_string(getpid()) + "-" + std::to_string(i)}, spec, now);
    if (!added.ok()) _exit(2);
    Acknowledged acknowledged = {std::stoll(added->job.job_id().substr(4)), 0};
    if (write(pipe_fd, &acknowledged, sizeof(acknowledged)) != sizeof(acknowledged)) _exit(3);
    for (int64_t step = 1; step <= kStepsPerJob; ++step) {
      v1::Progress progress;
      progress.set_step(step);
      Happening happening;
      happening.time = now;
      happening.step.emplace().set_step(step);
      if (!(*store)->Append(added->job.job_id(), {happening, happening}, &progress, nullptr).ok()) _exit(4);
      acknowledged.step = step;
      if (write(pipe_fd, &acknowledged, sizeof(acknowledged)) != sizeof(acknowledged)) _exit(3);
    }
  }
}

TEST(SqliteStoreKillTest, WhatWasAcknowledgedSurvives) {
  TempDir folder;
  const std::string path = folder.Join("store.db");
  std::mt19937 random(20240607);
  std::map<int64_t, int64_t> acknowledged_steps;  // by job number
  for (int round = 0; round < 12; ++round) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(fds[0]);
      WriteForEver(path, fds[1]);
    }
    close(fds[1]);
    // The moment is chosen by what was acknowledged and then a little real time, so that it falls anywhere in a write.
    const int reads = static_cast<int>(random() % 30);
    for (int i = 0; i < reads; ++i) {
      Acknowledged acknowledged;
      ASSERT_EQ(read(fds[0], &acknowledged, sizeof(acknowledged)), static_cast<ssize_t>(sizeof(acknowledged)));
      acknowledged_steps[acknowledged.number] = acknowledged.step;
    }
    usleep(static_cast<useconds_t>(random() % 3000));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    Acknowledged acknowledged;
    while (read(fds[0], &acknowledged, sizeof(acknowledged)) == sizeof(acknowledged)) {
      acknowledged_steps[acknowledged.number] = acknowledged.step;
    }
    close(fds[0]);

    ASSERT_OK_AND_ASSIGN(const auto store, SqliteStore::Open(path));
    for (const auto& [number, step] : acknowledged_steps) {
      const std::string job_id = "job-" + std::to_string(number);
      ASSERT_OK_AND_ASSIGN(const v1::Job job, store->GetJob(job_id));
      EXPECT_GE(job.progress().step(), step) << job_id;
      ASSERT_OK_AND_ASSIGN(const auto events, store->EventsSince(job_id, 0, 1000));
      EXPECT_EQ(events.size(), static_cast<size_t>(1 + 2 * job.progress().step()))
          << job_id << ": events and progress are one write";
      EXPECT_EQ(events.back().resource_version(), job.resource_version());
    }
  }
  EXPECT_GT(acknowledged_steps.size(), 5u);
}

TEST(SqliteStoreTest, AFileThatIsNoStoreIsRefused) {
  TempDir folder;
  const std::string path = folder.Write("store.db", std::string(5000, 'x'));
  EXPECT_THAT(SqliteStore::Open(path), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("store.db")));
}

TEST(SqliteStoreTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THAT(SqliteStore::Open("/nonexistent/store.db"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("/nonexistent/store.db")));
}

TEST(SqliteStoreTest, AStoreOfANewerVersionIsRefusedAndUntouched) {
  TempDir folder;
  const std::string path = folder.Join("store.db");
  ASSERT_OK(SqliteStore::Open(path));
  {
    ASSERT_OK_AND_ASSIGN(const auto database, SqliteDatabase::Open(path));
    ASSERT_OK(database->Execute("UPDATE meta SET schema_version = 99"));
  }
  EXPECT_THAT(SqliteStore::Open(path), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("schema version 99")));
}

}  // namespace
}  // namespace sluice::controller
