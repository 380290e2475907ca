#include "worker/supervisor.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "worker/train_metrics.h"

namespace sluice::worker {
namespace {

// Job ids become folder names.
absl::Status CheckJobId(const std::string& job_id) {
  const bool plain = !job_id.empty() && job_id.size() <= 128 && job_id[0] != '.' &&
                     std::all_of(job_id.begin(), job_id.end(),
                                 [](unsigned char c) { return isalnum(c) || c == '-' || c == '_' || c == '.'; });
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError("job_id must be 1 to 128 letters, digits, '-', '_' or '.'");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(const SupervisorOptions& options, Metrics* metrics) {
  // A unix socket's path has at most 107 bytes: a short folder of its own, not one below a long state folder.
  ASSIGN_OR_RETURN(TemporaryFolder sockets, TemporaryFolder::Create("sluice-"));
  return std::unique_ptr<Supervisor>(new Supervisor(options, std::move(sockets), metrics));
}

Supervisor::Supervisor(const SupervisorOptions& options, TemporaryFolder sockets, Metrics* metrics)
    : options_(options), sockets_(std::move(sockets)), metrics_(metrics) {
  for (int slot = 0; slot < options.rank_slots; ++slot) free_slots_.insert(slot);
}

Supervisor::~Supervisor() { Shutdown(absl::ZeroDuration()); }

absl::Status Supervisor::CheckEpoch(const std::string& job_id, int64_t epoch) {
  int64_t& newest = newest_epoch_[job_id];
  if (epoch < newest) {
    return absl::FailedPreconditionError(
        absl::StrCat(job_id, ": epoch ", epoch, " is older than ", newest, ", which this worker has seen"));
  }
  newest = epoch;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Attempt>> Supervisor::Find(const std::string& job_id, int32_t attempt) const {
  const auto found = running_.find(job_id);
  if (found == running_.end() || found->second.key.attempt() != attempt || found->second.attempt == nullptr) {
    return absl::NotFoundError(absl::StrCat(job_id, ": attempt ", attempt, " does not run on this worker"));
  }
  return found->second.attempt;
}

absl::StatusOr<std::vector<int>> Supervisor::TakeSlots(int count) {
  if (static_cast<int>(free_slots_.size()) < count) {
    return absl::ResourceExhaustedError(absl::StrCat("needs ", count, " rank slots, ", free_slots_.size(), " of ",
                                                     options_.rank_slots, " are free on this worker"));
  }
  std::vector<int> slots(free_slots_.begin(), std::next(free_slots_.begin(), count));
  for (int slot : slots) free_slots_.erase(slot);
  return slots;
}

std::string Supervisor::LogPath(const std::string& job_id, int32_t attempt, int32_t rank) const {
  return absl::StrCat(options_.log_dir, "/", job_id, "/", attempt, "/rank_", rank, ".log");
}

std::vector<EngineLaunch> Supervisor::Launches(const v1::StartAttemptRequest& request,
                                               const std::vector<int>& slots) const {
  const bool all_here = request.ranks_size() == request.world_size();
  const int asked_threads = request.spec().engine().cpu_threads();
  const bool use_gpus = !options_.gpu_ids.empty() && request.spec().engine().device() != "cpu";
  std::vector<EngineLaunch> launches;
  for (int i = 0; i < request.ranks_size(); ++i) {
    EngineLaunch launch;
    launch.engine_binary = options_.engine_binary;
    launch.silent_asks = static_cast<int>(options_.engine_silence / EngineProcess::kAskInterval);
    launch.rank = request.ranks(i);
    launch.socket_path = absl::StrCat(sockets_.path(), "/", request.epoch(), ".", slots[i], ".sock");
    launch.log_path = LogPath(request.job_id(), request.attempt(), launch.rank);
    launch.cpu_threads = asked_threads > 0 ? asked_threads : std::max(1, options_.cpu_cores / request.ranks_size());
    if (use_gpus) {
      const auto slot = static_cast<size_t>(slots[i]);
      launch.gpu = slot < options_.gpu_ids.size() ? options_.gpu_ids[slot] : "";
    }
    launch.host = all_here ? "127.0.0.1" : options_.host;
    launch.serve_rendezvous = launch.rank == 0 && !all_here;
    launches.push_back(launch);
  }
  return launches;
}

bool Supervisor::NotStarting(const std::string& job_id) const {
  const auto found = running_.find(job_id);
  return found == running_.end() || found->second.attempt != nullptr;
}

absl::StatusOr<v1::StartAttemptResponse> Supervisor::StartAttempt(const v1::StartAttemptRequest& request) {
  RETURN_IF_ERROR(CheckJobId(request.job_id()));
  if (request.ranks().empty() || request.world_size() < request.ranks_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.ranks_size(), " ranks of a world of ", request.world_size(), " cannot be started"));
  }
  Running starting;
  starting.key.set_job_id(request.job_id());
  starting.key.set_attempt(request.attempt());
  starting.epoch = request.epoch();

  for (;;) {
    int32_t older = 0;
    {
      absl::MutexLock lock(&mutex_);
      if (shut_down_) return absl::UnavailableError("this worker is shutting down");
      RETURN_IF_ERROR(CheckEpoch(request.job_id(), request.epoch()));
      while (!NotStarting(request.job_id())) changed_.Wait(&mutex_);  // a repeated call waits for the first
      const auto found = running_.find(request.job_id());
      if (found == running_.end()) {
        ASSIGN_OR_RETURN(starting.slots, TakeSlots(request.ranks_size()));
        running_[request.job_id()] = starting;
        break;
      }
      if (found->second.key.attempt() == request.attempt() && found->second.epoch == request.epoch()) {
        v1::StartAttemptResponse response;
        for (const v1::StartedEngine& engine : found->second.attempt->started()) *response.add_engines() = engine;
        return response;
      }
      older = found->second.key.attempt();
    }
    Stop(request.job_id(), older, absl::ZeroDuration());
  }

  std::error_code error;
  std::filesystem::create_directories(
      std::filesystem::path(LogPath(request.job_id(), request.attempt(), 0)).parent_path(), error);
  absl::StatusOr<std::shared_ptr<Attempt>> attempt =
      error ? absl::UnavailableError(absl::StrCat(options_.log_dir, ": ", error.message()))
            : Attempt::Start(starting.key, request.epoch(), Launches(request, starting.slots), options_.start_timeout);

  v1::StartAttemptResponse response;
  absl::MutexLock lock(&mutex_);
  if (!attempt.ok()) {
    free_slots_.insert(starting.slots.begin(), starting.slots.end());
    running_.erase(request.job_id());
  } else {
    running_[request.job_id()].attempt = *attempt;
    metrics_->Set(MetricId::kEngines, {}, options_.rank_slots - static_cast<int>(free_slots_.size()));
    for (v1::StartedEngine engine : (*attempt)->started()) {
      if (engine.rank() == 0 && request.world_size() > 1) {
        engine.set_rendezvous_address(
            (*attempt)->rendezvous_port() != 0
                ? absl::StrCat("tcp:", options_.host, ":", (*attempt)->rendezvous_port())
                : absl::StrCat("file:", sockets_.path(), "/", request.epoch(), ".rendezvous"));
      }
      *response.add_engines() = engine;
    }
  }
  changed_.SignalAll();
  RETURN_IF_ERROR(attempt.status());
  return response;
}

int Supervisor::Stop(const std::string& job_id, int32_t attempt, absl::Duration grace) {
  std::shared_ptr<Attempt> stopping;
  {
    absl::MutexLock lock(&mutex_);
    while (!NotStarting(job_id)) changed_.Wait(&mutex_);
    const auto found = running_.find(job_id);
    if (found == running_.end() || found->second.key.attempt() != attempt) return 0;
    stopping = found->second.attempt;
  }
  const Attempt::StopResult stopped = stopping->Stop(grace);
  absl::MutexLock lock(&mutex_);
  const auto found = running_.find(job_id);
  // Two calls may stop the same attempt at once: the slots are given back once.
  if (found == running_.end() || found->second.attempt != stopping) return stopped.killed;
  free_slots_.insert(found->second.slots.begin(), found->second.slots.end());
  running_.erase(found);
  RemoveTrainMetrics(metrics_, job_id);
  metrics_->Set(MetricId::kEngines, {}, options_.rank_slots - static_cast<int>(free_slots_.size()));
  metrics_->Increment(MetricId::kEngineExits, {"asked"}, stopped.asked);
  metrics_->Increment(MetricId::kEngineExits, {"killed"}, stopped.killed);
  changed_.SignalAll();
  return stopped.killed;
}

absl::StatusOr<v1::StopAttemptResponse> Supervisor::StopAttempt(const v1::StopAttemptRequest& request) {
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(CheckEpoch(request.job_id(), request.epoch()));
  }
  v1::StopAttemptResponse response;
  response.set_killed(Stop(request.job_id(), request.attempt(), absl::Seconds(request.grace_s())));
  return response;
}

absl::StatusOr<v1::RunStageResponse> Supervisor::RunStage(const v1::RunStageRequest& request, absl::Time deadline) {
  std::shared_ptr<Attempt> attempt;
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(CheckEpoch(request.job_id(), request.epoch()));
    ASSIGN_OR_RETURN(attempt, Find(request.job_id(), request.attempt()));
  }
  absl::StatusOr<v1::RunStageResponse> response =
      attempt->RunStage(request.stage(), {request.ranks().begin(), request.ranks().end()}, deadline);
  if (response.ok()) {
    // Rank 0's numbers are over all ranks; the worker that hosts it exports them.
    for (const v1::RankStageResponse& rank : response->ranks()) {
      if (rank.rank() == 0) ExportTrainMetrics(metrics_, request.job_id(), rank.response());
    }
  } else {
    ExportFailedStage(metrics_, request.job_id(), request.stage());
    if (const auto failure = FailureOf(response.status())) {
      metrics_->Increment(MetricId::kEngineExits, {v1::FailureReason_Name(failure->reason())});
    }
  }
  return response;
}

absl::StatusOr<v1::ReadLogResponse> Supervisor::ReadLog(const v1::ReadLogRequest& request) const {
  RETURN_IF_ERROR(CheckJobId(request.job_id()));
  if (request.offset() < 0) return absl::InvalidArgumentError("offset must not be negative");
  // Whether the process runs is asked before the file is read: what it wrote before it ended is then surely read.
  bool runs;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = running_.find(request.job_id());
    runs = found != running_.end() && found->second.key.attempt() == request.attempt() &&
           (found->second.attempt == nullptr || found->second.attempt->RankRuns(request.rank()));
  }
  constexpr int64_t kMaxBytes = 1 << 20;
  const int64_t max_bytes = request.max_bytes() > 0 ? std::min(request.max_bytes(), kMaxBytes) : kMaxBytes;
  const std::string path = LogPath(request.job_id(), request.attempt(), request.rank());
  std::ifstream in(path, std::ios::binary);
  v1::ReadLogResponse response;
  if (!in) {
    if (runs) return response;
    return absl::NotFoundError(absl::StrCat(request.job_id(), ": attempt ", request.attempt(), " has no log of rank ",
                                            request.rank(), " on this worker"));
  }
  in.seekg(request.offset());
  std::string data(max_bytes, '\0');
  in.read(data.data(), max_bytes);
  data.resize(std::max<int64_t>(0, in.gcount()));
  response.set_end(!runs && static_cast<int64_t>(data.size()) < max_bytes);
  response.set_data(std::move(data));
  return response;
}

std::vector<v1::AttemptStatus> Supervisor::Statuses() {
  std::vector<std::shared_ptr<Attempt>> attempts;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [job_id, running] : running_) {
      if (running.attempt != nullptr) attempts.push_back(running.attempt);
    }
  }
  std::vector<v1::AttemptStatus> statuses;
  for (const auto& attempt : attempts) statuses.push_back(attempt->Status());
  return statuses;
}

void Supervisor::StopWithoutFence(const v1::AttemptKey& key, absl::Duration grace) {
  Stop(key.job_id(), key.attempt(), grace);
}

void Supervisor::Shutdown(absl::Duration grace) {
  std::vector<v1::AttemptKey> keys;
  {
    absl::MutexLock lock(&mutex_);
    shut_down_ = true;
    for (const auto& [job_id, running] : running_) keys.push_back(running.key);
  }
  for (const v1::AttemptKey& key : keys) StopWithoutFence(key, grace);
}

}  // namespace sluice::worker
