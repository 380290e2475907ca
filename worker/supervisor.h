// Starts, watches and stops the engines of this host. What a controller asks for goes through here.
//
// Invariants (tests cite them by number):
//   SUP-1  A rank slot hosts at most one engine.
//   SUP-2  A call with an epoch older than the newest seen for its job changes nothing and gets FailedPrecondition.
//   SUP-3  At most one attempt of a job runs here.
//   SUP-4  When StopAttempt returns, no process of the attempt is left and its slots are free.
// Thread-safe. StartAttempt, StopAttempt and RunStage block.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/metrics.h"
#include "common/temporary_folder.h"
#include "sluice/v1/worker.pb.h"
#include "worker/attempt.h"

namespace sluice::worker {

struct SupervisorOptions {
  std::string engine_binary;
  std::string log_dir;               // logs are LOG_DIR/JOB/ATTEMPT/rank_N.log
  int rank_slots = 1;                // engines at once
  std::vector<std::string> gpu_ids;  // of the GPUs (gpu_probe.h): slot i has GPU i; a slot behind the last has none
  int cpu_cores = 1;                 // shared by the engines of an attempt
  std::string host = "127.0.0.1";    // address that engines on other hosts reach us at
  absl::Duration start_timeout = absl::Minutes(2);
  // An engine that answers nothing for so long in a stage is killed, in whole seconds; zero: never.
  absl::Duration engine_silence = absl::Seconds(7);
};

class Supervisor {
 public:
  // REQUIRES: metrics outlives the supervisor. Unavailable: no folder for sockets can be made.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Create(const SupervisorOptions& options, Metrics* metrics);
  ~Supervisor();

  absl::StatusOr<v1::StartAttemptResponse> StartAttempt(const v1::StartAttemptRequest& request);
  absl::StatusOr<v1::StopAttemptResponse> StopAttempt(const v1::StopAttemptRequest& request);
  absl::StatusOr<v1::RunStageResponse> RunStage(const v1::RunStageRequest& request, absl::Time deadline);
  absl::StatusOr<v1::ReadLogResponse> ReadLog(const v1::ReadLogRequest& request) const;

  // For heartbeats.
  std::vector<v1::AttemptStatus> Statuses();

  // Stops an attempt whatever its epoch: the controller said that it must not run, or cannot be reached any more.
  void StopWithoutFence(const v1::AttemptKey& key, absl::Duration grace);

  // Refuses further starts with Unavailable and stops everything.
  void Shutdown(absl::Duration grace);

 private:
  struct Running {
    std::shared_ptr<Attempt> attempt;  // null while its engines are being started
    v1::AttemptKey key;
    int64_t epoch = 0;
    std::vector<int> slots;
  };

  Supervisor(const SupervisorOptions& options, TemporaryFolder sockets, Metrics* metrics);

  absl::Status CheckEpoch(const std::string& job_id, int64_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<Attempt>> Find(const std::string& job_id, int32_t attempt) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<int>> TakeSlots(int count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<EngineLaunch> Launches(const v1::StartAttemptRequest& request, const std::vector<int>& slots) const;
  std::string LogPath(const std::string& job_id, int32_t attempt, int32_t rank) const;
  int Stop(const std::string& job_id, int32_t attempt, absl::Duration grace);
  bool NotStarting(const std::string& job_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SupervisorOptions options_;
  const TemporaryFolder sockets_;
  Metrics* const metrics_;
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Running> running_ ABSL_GUARDED_BY(mutex_);       // by job
  std::map<std::string, int64_t> newest_epoch_ ABSL_GUARDED_BY(mutex_);  // by job
  std::set<int> free_slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::worker
