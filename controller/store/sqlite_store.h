// The Store in one SQLite file, for a controller on one host. Write-ahead log with synchronous=FULL: a transaction is
// on the disk when its COMMIT returns. The file is locked for as long as it is open (STORE-3). Format:
// docs/store-format.md.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/store/event_retention.h"
#include "controller/store/sqlite.h"
#include "controller/store/store.h"

namespace sluice::controller {

class SqliteStore final : public Store {
 public:
  // Opens the file, or makes it. `on_commit`, where given, is told how long each commit took.
  // FailedPrecondition: another process has it open, or it was made by a newer version. DataLoss: it is no store.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& path,
                                                           std::function<void(absl::Duration)> on_commit = nullptr,
                                                           const EventRetention& retention = EventRetention());

  const std::string& store_id() const override { return store_id_; }
  absl::StatusOr<AddedJob> AddJob(const RequestId& request, const v1::JobSpec& spec, absl::Time now) override;
  absl::StatusOr<v1::Job> JobOfRequest(const RequestId& request) override;
  absl::StatusOr<v1::Job> GetJob(const std::string& job_id) override;
  absl::StatusOr<JobPage> ListJobs(const JobFilter& filter, int32_t page_size, const std::string& page_token) override;
  absl::StatusOr<std::vector<v1::Job>> UnfinishedJobs() override;
  absl::StatusOr<std::vector<int64_t>> CountByState() override;
  absl::StatusOr<v1::Job> Transition(const std::string& job_id, v1::JobState from, v1::JobState to,
                                     const Change& change) override;
  absl::StatusOr<AttemptRecord> BeginAttempt(const std::string& job_id, std::vector<Placement> placements,
                                             const Change& change) override;
  absl::StatusOr<v1::Job> Append(const std::string& job_id, const std::vector<Happening>& happenings,
                                 const v1::Progress* progress, const std::string* status_message) override;
  absl::StatusOr<std::vector<v1::JobEvent>> EventsSince(const std::string& job_id, int64_t after,
                                                        int64_t limit) override;
  absl::StatusOr<AttemptRecord> GetAttempt(const std::string& job_id, int32_t attempt) override;
  absl::StatusOr<int32_t> RestartsUsed(const std::string& job_id) override;
  absl::StatusOr<int64_t> NextEpoch() override;

 private:
  SqliteStore(std::function<void(absl::Duration)> on_commit, const EventRetention& retention)
      : on_commit_(std::move(on_commit)), retention_(retention) {}

  absl::Status Initialize(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CreateTables() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Runs `body` between BEGIN and COMMIT; anything but OK rolls back.
  absl::Status InTransaction(const std::function<absl::Status()>& body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The prepared statement of this text, reset.
  absl::StatusOr<SqliteStatement*> Statement(const std::string& sql) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::StatusOr<v1::Job> ReadJob(int64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteJob(int64_t number, const v1::Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<v1::Job>> ReadJobs(SqliteStatement* statement) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<v1::Job> FindRequest(const RequestId& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives `event` the next version, stores it and notes the version in `job`.
  absl::Status WriteEvent(int64_t number, v1::JobEvent event, v1::Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes the job's events that the retention gives up, once there are enough of them.
  absl::Status TrimEvents(int64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int64_t> TakeEpoch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MoveJob(int64_t number, v1::Job* job, v1::JobState to, const Change& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after Open.
  const std::function<void(absl::Duration)> on_commit_;
  const EventRetention retention_;
  std::string store_id_;

  absl::Mutex mutex_;
  std::unique_ptr<SqliteDatabase> database_ ABSL_GUARDED_BY(mutex_);
  // After database_, so that statements are finalised before it closes.
  std::map<std::string, SqliteStatement> statements_ ABSL_GUARDED_BY(mutex_);
  int64_t last_version_ ABSL_GUARDED_BY(mutex_) = 0;
  // Events by job, of the jobs that got one since the last rollback.
  std::map<int64_t, int64_t> event_counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::controller
