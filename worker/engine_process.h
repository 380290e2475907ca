// One engine: its process, its socket, and calls to it. Owned by an Attempt. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/process.h"
#include "sluice/v1/controller.pb.h"
#include "sluice/v1/engine.grpc.pb.h"

namespace sluice::worker {

struct EngineLaunch {
  std::string engine_binary;
  std::string socket_path;  // unix socket that the engine will listen on; at most 107 bytes
  std::string log_path;     // its standard output and error
  int rank = 0;
  int cpu_threads = 1;
  std::optional<std::string> gpu;  // its CUDA_VISIBLE_DEVICES; unset: as ours
  std::string host;                // interface its peers connect to
  bool serve_rendezvous = false;   // rank 0 with peers on other hosts
  int silent_asks = 0;             // unanswered ones in a row after which it is killed (KillIfSilent); 0: never
};

class EngineProcess {
 public:
  static absl::StatusOr<std::unique_ptr<EngineProcess>> Start(const EngineLaunch& launch);

  // Kills the process if it still runs.
  ~EngineProcess() = default;

  int rank() const { return launch_.rank; }
  pid_t pid() const { return process_->pid(); }

  // Returns the engine's state once it answers. Aborted, with a Failure: it ended before. DeadlineExceeded otherwise.
  absl::StatusOr<v1::EngineState> WaitUntilReady(absl::Duration timeout);

  // Runs an operation; blocks until the engine has answered or is gone.
  absl::StatusOr<v1::StageResponse> RunStage(const v1::StageRequest& request, absl::Time deadline);

  // Why it ended, once it has and nobody asked for it. Waits at most `patience` for a process that is just ending.
  std::optional<v1::Failure> UnaskedExit(absl::Duration patience) const;

  // Asks whether it lives. A process that is stopped or stuck in the kernel answers nothing, and its peers would wait
  // for it: after launch.silent_asks times it is killed, its calls end, and UnaskedExit has the reason. To be called
  // every kAskInterval; where several threads do, it asks once in each.
  static constexpr absl::Duration kAskInterval = absl::Seconds(1);
  void KillIfSilent();

  // Asks it to finish, then SIGTERM, then SIGKILL when `grace` is over. Returns when it is gone; true if it had to be
  // killed.
  bool Stop(absl::Duration grace);

  bool running() const { return !process_->exit().has_value(); }

  // For heartbeats: asks the engine, and waits a moment at most.
  v1::EngineStatus Status();

 private:
  std::optional<v1::EngineState> Ask();

  EngineProcess(const EngineLaunch& launch, std::unique_ptr<ChildProcess> process);

  const EngineLaunch launch_;
  const std::unique_ptr<ChildProcess> process_;
  const std::unique_ptr<v1::EngineService::Stub> stub_;
  std::atomic<bool> stop_asked_ = false;
  absl::Mutex ask_mutex_;
  absl::Time asked_ ABSL_GUARDED_BY(ask_mutex_) = absl::InfinitePast();
  int silent_asks_ ABSL_GUARDED_BY(ask_mutex_) = 0;  // in a row
  std::atomic<char> killed_in_state_ = 0;            // of its process in /proc, once it was killed for its silence
};

}  // namespace sluice::worker
