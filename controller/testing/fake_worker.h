// A worker daemon with engines that do as a test says: answer, fail, hang, be lost. It keeps the contract of
// worker.proto: fencing, idempotent starts, stops of what is not there. Threads: all methods may be called from any
// thread. No method sleeps.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "controller/dataflow/worker_client.h"
#include "sluice/v1/controller.pb.h"

namespace sluice::controller::testing {

class FakeWorker final : public WorkerClient {
 public:
  // What InitializeOp answers.
  int64_t total_steps = 10;
  int64_t steps_per_epoch = 5;

  // The stage of this name and step (0 where a stage has none) is answered with `status`, the next `times` times.
  void FailStage(const std::string& stage, int64_t step, const absl::Status& status, int times = 1);
  // Every answer of this name has this warning.
  void WarnInStage(const std::string& stage, const std::string& warning);
  // It does not answer until Release, or its engines are stopped, or the caller gives up.
  void HangStage(const std::string& stage, int64_t step);
  void HangStart();
  void Release();
  // StartAttempt has no effect and is Unavailable, as if the call was lost.
  void LoseStarts(bool lost);
  // Every new call is Unavailable; engines go on, and a call that hangs goes on hanging.
  void SetReachable(bool reachable);
  // Engines do not end when asked: they have to be killed.
  void IgnoreAsking();
  // The engines of all attempts are gone, as after a kill of the daemon; stages that hang are answered with `status`.
  void KillEngines(const absl::Status& status);

  // Blocks until a stage of this name and step, or a start, has come in.
  void AwaitStage(const std::string& stage, int64_t step);
  void AwaitStart();

  int engines_running() const;
  int engines_ever_started() const;
  int engines_killed() const;
  int starts_refused() const;
  double last_grace_s() const;
  // `train_batch 3`, in the order they came.
  std::vector<std::string> stages() const;
  // The ranks that a stage was for; none: it was for all, or never came.
  std::vector<int32_t> RanksAsked(const std::string& stage, int64_t step) const;
  std::set<int64_t> checkpoints() const;
  std::string last_resume_mode() const;
  v1::InitializeOp last_initialize() const;
  // What it would say in a heartbeat.
  std::vector<v1::AttemptStatus> attempts() const;

  absl::StatusOr<v1::StartAttemptResponse> StartAttempt(const v1::StartAttemptRequest& request,
                                                        const CallOptions& options) override;
  absl::StatusOr<v1::StopAttemptResponse> StopAttempt(const v1::StopAttemptRequest& request,
                                                      const CallOptions& options) override;
  absl::StatusOr<v1::RunStageResponse> RunStage(const v1::RunStageRequest& request,
                                                const CallOptions& options) override;
  absl::StatusOr<v1::ReadLogResponse> ReadLog(const v1::ReadLogRequest& request, const CallOptions& options) override;

  // What ReadLog serves: rank 0's output.
  void AppendLog(const std::string& text);

 private:
  struct Attempt {
    int32_t attempt = 0;
    int64_t epoch = 0;
    std::vector<int32_t> ranks;
  };

  absl::Status Fence(const std::string& job_id, int64_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits while `*hangs`; the reason it ended, OK for Release.
  absl::Status Hang(const bool* hangs, const std::string* job_id, const CallOptions& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::StageResponse Answer(const v1::StageRequest& stage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  mutable absl::CondVar changed_;
  std::map<std::string, Attempt> attempts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> newest_epoch_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::pair<absl::Status, int>> failures_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> warnings_ ABSL_GUARDED_BY(mutex_);  // by stage
  std::map<std::string, bool> hangs_ ABSL_GUARDED_BY(mutex_);
  bool start_hangs_ ABSL_GUARDED_BY(mutex_) = false;
  bool starts_lost_ ABSL_GUARDED_BY(mutex_) = false;
  bool reachable_ ABSL_GUARDED_BY(mutex_) = true;
  bool ignores_asking_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status engines_gone_ ABSL_GUARDED_BY(mutex_);
  int starts_ ABSL_GUARDED_BY(mutex_) = 0;
  int engines_started_ ABSL_GUARDED_BY(mutex_) = 0;
  int engines_killed_ ABSL_GUARDED_BY(mutex_) = 0;
  int starts_refused_ ABSL_GUARDED_BY(mutex_) = 0;
  double last_grace_s_ ABSL_GUARDED_BY(mutex_) = -1;
  std::vector<std::string> stages_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<int32_t>> ranks_asked_ ABSL_GUARDED_BY(mutex_);
  std::set<int64_t> checkpoints_ ABSL_GUARDED_BY(mutex_);
  v1::InitializeOp last_initialize_ ABSL_GUARDED_BY(mutex_);
  std::string log_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::controller::testing
