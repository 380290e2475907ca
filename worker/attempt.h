// The engines of one attempt of a job on this host. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sluice/v1/worker.pb.h"
#include "worker/engine_process.h"

namespace sluice::worker {

class Attempt {
 public:
  // How long the other ranks may go on after one has failed, or its process has ended. A rank that waits in a
  // collective for the failed one would otherwise wait for the collective's whole time-out. An end needs no peer to
  // explain it.
  static constexpr absl::Duration kPeerGrace = absl::Seconds(10);
  static constexpr absl::Duration kPeerGraceAfterEnd = absl::Seconds(1);

  // Starts the engines side by side and waits until all answer. On an error none is left.
  static absl::StatusOr<std::shared_ptr<Attempt>> Start(const v1::AttemptKey& key, int64_t epoch,
                                                        const std::vector<EngineLaunch>& launches,
                                                        absl::Duration timeout);

  const v1::AttemptKey& key() const { return key_; }
  int64_t epoch() const { return epoch_; }
  int ranks() const { return static_cast<int>(engines_.size()); }

  // Pid and state of each engine as they answered first, in the order of launches.
  const std::vector<v1::StartedEngine>& started() const { return started_; }
  // Port of the rendezvous store of the engine that serves one; 0 where none does.
  int rendezvous_port() const { return rendezvous_port_; }

  // Runs a stage on the engines of these ranks, on none: on all; blocks until all of them have answered, or one has
  // failed and its peers had their grace: then all engines are killed. An engine that answers nothing any more is
  // killed too (EngineProcess::KillIfSilent). The error is the first rank's that failed; Aborted with a Failure where a
  // process ended. InvalidArgument: a rank that is not here. Stages may run at once.
  absl::StatusOr<v1::RunStageResponse> RunStage(const v1::StageRequest& request, const std::vector<int>& ranks,
                                                absl::Time deadline);

  // How engines that still ran ended: by themselves when asked, or killed.
  struct StopResult {
    int asked = 0;
    int killed = 0;
  };
  // Stops all engines side by side.
  StopResult Stop(absl::Duration grace);

  v1::AttemptStatus Status();
  bool RankRuns(int rank) const;

 private:
  bool AnyEnded() const;
  absl::StatusOr<std::vector<EngineProcess*>> EnginesOf(const std::vector<int>& ranks) const;

  Attempt(const v1::AttemptKey& key, int64_t epoch) : key_(key), epoch_(epoch) {}

  const v1::AttemptKey key_;
  const int64_t epoch_;
  std::vector<std::unique_ptr<EngineProcess>> engines_;  // set before Start returns
  std::vector<v1::StartedEngine> started_;
  int rendezvous_port_ = 0;
};

}  // namespace sluice::worker
