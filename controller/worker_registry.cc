#include "controller/worker_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/logging.h"
#include "common/proto_time.h"

namespace sluice::controller {

WorkerRegistry::WorkerRegistry(const RegistryOptions& options, const Clock* clock, Metrics* metrics)
    : options_(options), clock_(clock), metrics_(metrics), start_time_(clock->Now()) {}

v1::WorkerState WorkerRegistry::StateOf(const Entry& entry, absl::Time now) const {
  const absl::Duration silence = now - entry.last_heartbeat;
  // Once reported as lost it stays lost until it registers again, even if the clock is set back.
  if (entry.loss_reported || silence >= options_.lost_after) return v1::WORKER_STATE_LOST;
  return silence >= options_.suspect_after ? v1::WORKER_STATE_SUSPECT : v1::WORKER_STATE_READY;
}

absl::StatusOr<v1::RegisterWorkerResponse> WorkerRegistry::Register(const v1::RegisterWorkerRequest& request) {
  if (request.worker_id().empty() || request.incarnation().empty() || request.address().empty()) {
    return absl::InvalidArgumentError("worker_id, incarnation and address must be given");
  }
  if (request.resources().rank_slots() < 1)
    return absl::InvalidArgumentError("resources.rank_slots must be at least 1");
  if (request.version() != BuildVersion()) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", request.worker_id(), " is version ", request.version(),
                                                      ", this controller is ", BuildVersion(),
                                                      " (install the same on both)"));
  }
  const absl::Time now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  Entry& entry = workers_[request.worker_id()];
  const std::string& known = entry.registration.incarnation();
  if (!known.empty() && known != request.incarnation() && !entry.loss_reported) {
    losses_.push_back({request.worker_id(), known, absl::StrCat("worker ", request.worker_id(), " was started anew")});
  }
  LoggerFor("registry")
      .Info(absl::StrCat("worker ", request.worker_id(), " at ", request.address(), " registers ",
                         request.resources().rank_slots(), " ", request.resources().device(), " ranks"));
  entry = Entry{request, now, /*loss_reported=*/false};
  UpdateMetrics(now);
  v1::RegisterWorkerResponse response;
  response.set_heartbeat_interval_s(absl::ToDoubleSeconds(options_.heartbeat_interval));
  response.set_lease_s(absl::ToDoubleSeconds(options_.lease));
  return response;
}

absl::Status WorkerRegistry::Heartbeat(const std::string& worker_id, const std::string& incarnation) {
  const absl::Time now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(worker_id);
  if (found == workers_.end() || found->second.registration.incarnation() != incarnation ||
      StateOf(found->second, now) == v1::WORKER_STATE_LOST) {
    return absl::NotFoundError(absl::StrCat("worker ", worker_id, " is not registered (register again)"));
  }
  found->second.last_heartbeat = now;
  metrics_->Increment(MetricId::kWorkerHeartbeats);
  metrics_->Set(MetricId::kWorkerLastHeartbeat, {worker_id}, absl::ToDoubleSeconds(now - absl::UnixEpoch()));
  return absl::OkStatus();
}

std::vector<v1::Worker> WorkerRegistry::List() const {
  const absl::Time now = clock_->Now();
  std::vector<v1::Worker> workers;
  absl::MutexLock lock(&mutex_);
  for (const auto& [worker_id, entry] : workers_) {
    v1::Worker& worker = workers.emplace_back();
    worker.set_worker_id(worker_id);
    worker.set_incarnation(entry.registration.incarnation());
    worker.set_address(entry.registration.address());
    *worker.mutable_resources() = entry.registration.resources();
    worker.set_state(StateOf(entry, now));
    *worker.mutable_last_heartbeat_time() = ToTimestamp(entry.last_heartbeat);
  }
  return workers;
}

std::vector<WorkerLoss> WorkerRegistry::TakeLosses() {
  const absl::Time now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  for (auto entry = workers_.begin(); entry != workers_.end();) {
    const absl::Duration silence = now - entry->second.last_heartbeat;
    if (!entry->second.loss_reported && silence >= options_.lost_after) {
      entry->second.loss_reported = true;
      losses_.push_back({entry->first, entry->second.registration.incarnation(),
                         absl::StrCat("worker ", entry->first, " was not heard from for ",
                                      absl::FormatDuration(absl::Trunc(silence, absl::Seconds(1))))});
      LoggerFor("registry").Warning(losses_.back().reason);
    }
    if (silence >= options_.forget_after) {
      metrics_->Remove(MetricId::kWorkerLastHeartbeat, {entry->first});
      entry = workers_.erase(entry);
    } else {
      ++entry;
    }
  }
  UpdateMetrics(now);
  return std::exchange(losses_, {});
}

bool WorkerRegistry::IsGone(const std::string& worker_id, const std::string& incarnation) const {
  const absl::Time now = clock_->Now();
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(worker_id);
  if (found == workers_.end()) return now - start_time_ >= options_.lost_after;
  return found->second.registration.incarnation() != incarnation ||
         StateOf(found->second, now) == v1::WORKER_STATE_LOST;
}

void WorkerRegistry::UpdateMetrics(absl::Time now) const {
  int ready = 0, suspect = 0, lost = 0;
  for (const auto& [worker_id, entry] : workers_) {
    const v1::WorkerState state = StateOf(entry, now);
    ready += state == v1::WORKER_STATE_READY;
    suspect += state == v1::WORKER_STATE_SUSPECT;
    lost += state == v1::WORKER_STATE_LOST;
  }
  metrics_->Set(MetricId::kWorkers, {"ready"}, ready);
  metrics_->Set(MetricId::kWorkers, {"suspect"}, suspect);
  metrics_->Set(MetricId::kWorkers, {"lost"}, lost);
}

}  // namespace sluice::controller
