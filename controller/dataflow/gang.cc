#include "controller/dataflow/gang.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "controller/dataflow/failure.h"
#include "controller/dataflow/job_plan.h"

namespace sluice::controller {

Gang::Gang(AttemptRecord record, const AttemptOptions& options, const WorkerClientFactory& clients,
           const WorkerRegistry* registry, const Clock* clock)
    : record_(std::move(record)), options_(options), registry_(registry), clock_(clock) {
  for (const Placement& placement : record_.placements) {
    auto member = members_.begin();
    while (member != members_.end() && member->worker_id != placement.worker_id) ++member;
    if (member == members_.end()) {
      member =
          members_.insert(members_.end(), {placement.worker_id, placement.incarnation, clients(placement.address), {}});
    }
    member->ranks.push_back(placement.rank);
  }
}

std::vector<size_t> Gang::AllMembers() const {
  std::vector<size_t> members(members_.size());
  std::iota(members.begin(), members.end(), size_t{0});
  return members;
}

absl::Status Gang::OnMembers(const std::vector<size_t>& members, const std::string& what, std::stop_token stop,
                             const std::function<absl::Status(size_t member, std::stop_token stop)>& call) const {
  std::stop_source calls;
  std::stop_callback forward(stop, [&calls] { calls.request_stop(); });
  absl::Mutex mutex;
  absl::CondVar changed;
  size_t running = members.size();
  std::vector<v1::Failure> failures;
  const auto run = [&](size_t index) {
    const absl::Status status = call(index, calls.get_token());
    absl::MutexLock lock(&mutex);
    // What fails after the calls were cancelled failed because of that.
    if (!status.ok() && !calls.stop_requested()) {
      failures.push_back(FailureFromStatus(status, absl::StrCat(what, " on worker ", members_[index].worker_id)));
    }
    --running;
    changed.SignalAll();
  };
  if (members.size() == 1) {
    run(members[0]);
  } else {
    std::vector<std::thread> threads;
    for (const size_t index : members) threads.emplace_back(run, index);
    {
      absl::MutexLock lock(&mutex);
      while (running > 0 && failures.empty()) changed.Wait(&mutex);
      const absl::Time settled = clock_->Now() + options_.settle;
      while (running > 0 && clock_->Now() < settled) clock_->WaitUntil(&mutex, &changed, settled);
    }
    calls.request_stop();
    for (std::thread& thread : threads) thread.join();
  }
  absl::MutexLock lock(&mutex);
  if (stop.stop_requested()) return absl::CancelledError(absl::StrCat(what, " was given up"));
  if (failures.empty()) return absl::OkStatus();
  const v1::Failure cause = RootCause(failures);
  return WithFailure(absl::AbortedError(cause.message()), cause);
}

absl::StatusOr<std::string> Gang::Start(const v1::JobSpec& spec, std::stop_token stop) {
  std::vector<v1::StartAttemptResponse> responses(members_.size());
  const auto start = [&](size_t index, std::stop_token call_stop) -> absl::Status {
    v1::StartAttemptRequest request;
    request.set_job_id(record_.job_id);
    request.set_attempt(record_.attempt);
    request.set_epoch(record_.epoch);
    *request.mutable_spec() = spec;
    for (const int32_t rank : members_[index].ranks) request.add_ranks(rank);
    request.set_world_size(world_size());
    ASSIGN_OR_RETURN(responses[index],
                     members_[index].client->StartAttempt(request, {options_.start_timeout, call_stop}));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(OnMembers(AllMembers(), "starting the engines", stop, start));
  for (const v1::StartAttemptResponse& response : responses) {
    for (const v1::StartedEngine& engine : response.engines()) {
      if (engine.rank() == 0) return engine.rendezvous_address();
    }
  }
  return absl::InternalError("no worker said that it started rank 0");
}

absl::StatusOr<std::vector<v1::RankStageResponse>> Gang::RunStage(const v1::StageRequest& stage,
                                                                  const std::vector<int32_t>& ranks,
                                                                  absl::Duration timeout, std::stop_token stop) const {
  std::vector<v1::RunStageRequest> requests(members_.size());
  std::vector<v1::RunStageResponse> responses(members_.size());
  std::vector<size_t> asked;
  for (size_t index = 0; index < members_.size(); ++index) {
    v1::RunStageRequest& request = requests[index];
    for (const int32_t rank : members_[index].ranks) {
      if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) request.add_ranks(rank);
    }
    if (!ranks.empty() && request.ranks().empty()) continue;
    request.set_job_id(record_.job_id);
    request.set_attempt(record_.attempt);
    request.set_epoch(record_.epoch);
    *request.mutable_stage() = stage;
    asked.push_back(index);
  }
  const auto run = [&](size_t index, std::stop_token call_stop) -> absl::Status {
    ASSIGN_OR_RETURN(responses[index], members_[index].client->RunStage(requests[index], {timeout, call_stop}));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(OnMembers(asked, StageName(stage), stop, run));
  std::vector<v1::RankStageResponse> answers;
  for (v1::RunStageResponse& response : responses) {
    for (v1::RankStageResponse& rank : *response.mutable_ranks()) answers.push_back(std::move(rank));
  }
  return answers;
}

absl::Status Gang::Stop(int64_t epoch, absl::Duration grace, std::stop_token abandon,
                        const std::function<void(const std::string& reason)>& on_waiting) {
  std::vector<absl::Status> results(members_.size());
  const auto stop = [&](size_t index) {
    results[index] = StopMember(members_[index], epoch, grace, abandon, on_waiting);
  };
  if (members_.size() == 1) {
    stop(0);
  } else {
    std::vector<std::thread> threads;
    for (size_t index = 0; index < members_.size(); ++index) threads.emplace_back(stop, index);
    for (std::thread& thread : threads) thread.join();
  }
  for (const absl::Status& result : results) RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

absl::Status Gang::StopMember(const Member& member, int64_t epoch, absl::Duration grace, std::stop_token abandon,
                              const std::function<void(const std::string&)>& on_waiting) {
  v1::StopAttemptRequest request;
  request.set_job_id(record_.job_id);
  request.set_attempt(record_.attempt);
  request.set_epoch(epoch);
  request.set_grace_s(absl::ToDoubleSeconds(grace));
  bool told = false;
  absl::Mutex mutex;
  absl::CondVar changed;
  std::stop_callback wake(abandon, [&] {
    absl::MutexLock lock(&mutex);
    changed.SignalAll();
  });
  while (!abandon.stop_requested()) {
    // From before the look at the worker: time that passes during the look counts.
    const absl::Time again = clock_->Now() + options_.stop_retry;
    if (registry_->IsGone(member.worker_id, member.incarnation)) return absl::OkStatus();
    const auto stopped = member.client->StopAttempt(request, {grace + options_.stop_margin, abandon});
    // FailedPrecondition: the worker has seen a newer fencing number for this job, under which the attempt was stopped.
    if (stopped.ok() || absl::IsFailedPrecondition(stopped.status())) return absl::OkStatus();
    if (!told) {
      told = true;
      on_waiting(absl::StrCat("waits for worker ", member.worker_id,
                              " to stop its engines: ", std::string(stopped.status().message())));
    }
    absl::MutexLock lock(&mutex);
    while (!abandon.stop_requested() && clock_->Now() < again) clock_->WaitUntil(&mutex, &changed, again);
  }
  return absl::CancelledError("stopping was given up");
}

}  // namespace sluice::controller
