// The workers of one attempt as one: a call goes to all of them at once.
// Threads: RunStage may be called from several threads at once, for stages of different ranks or that run beside each
// other; else one thread at a time calls. RequestStop of the tokens may come from any.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "controller/dataflow/attempt_options.h"
#include "controller/dataflow/worker_client.h"
#include "controller/store/records.h"
#include "controller/worker_registry.h"

namespace sluice::controller {

class Gang {
 public:
  // REQUIRES: registry and clock outlive the gang.
  Gang(AttemptRecord record, const AttemptOptions& options, const WorkerClientFactory& clients,
       const WorkerRegistry* registry, const Clock* clock);

  int32_t world_size() const { return static_cast<int32_t>(record_.placements.size()); }
  int32_t workers() const { return static_cast<int32_t>(members_.size()); }

  // Starts the engines everywhere. Returns where the ranks meet (StartedEngine.rendezvous_address), or the first cause
  // of failure with its Failure attached, or Cancelled once `stop` is requested.
  absl::StatusOr<std::string> Start(const v1::JobSpec& spec, std::stop_token stop);

  // Runs a stage on these ranks; on none: on all. Errors as Start.
  absl::StatusOr<std::vector<v1::RankStageResponse>> RunStage(const v1::StageRequest& stage,
                                                              const std::vector<int32_t>& ranks, absl::Duration timeout,
                                                              std::stop_token stop) const;

  // Stops the attempt on every worker, with a fencing number that refuses late calls for it. Returns OK when each
  // worker has said so or is gone (WorkerRegistry::IsGone); asks again until then. `on_waiting` is told once for each
  // worker that does not answer. Cancelled: `abandon` was requested first.
  absl::Status Stop(int64_t epoch, absl::Duration grace, std::stop_token abandon,
                    const std::function<void(const std::string& reason)>& on_waiting);

 private:
  struct Member {
    std::string worker_id;
    std::string incarnation;
    std::shared_ptr<WorkerClient> client;
    std::vector<int32_t> ranks;
  };

  // Calls `call` for these members in parallel. On the first failure the others get options_.settle to end, then their
  // calls are cancelled.
  absl::Status OnMembers(const std::vector<size_t>& members, const std::string& what, std::stop_token stop,
                         const std::function<absl::Status(size_t member, std::stop_token stop)>& call) const;
  std::vector<size_t> AllMembers() const;
  absl::Status StopMember(const Member& member, int64_t epoch, absl::Duration grace, std::stop_token abandon,
                          const std::function<void(const std::string&)>& on_waiting);

  const AttemptRecord record_;
  const AttemptOptions options_;
  const WorkerRegistry* const registry_;
  const Clock* const clock_;
  std::vector<Member> members_;  // in the order of their lowest rank
};

}  // namespace sluice::controller
