#include "controller/testing/fake_worker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "controller/dataflow/job_plan.h"

namespace sluice::controller::testing {
namespace {

std::string Key(const std::string& stage, int64_t step) { return absl::StrCat(stage, " ", step); }

}  // namespace

void FakeWorker::FailStage(const std::string& stage, int64_t step, const absl::Status& status, int times) {
  absl::MutexLock lock(&mutex_);
  failures_[Key(stage, step)] = {status, times};
}

void FakeWorker::WarnInStage(const std::string& stage, const std::string& warning) {
  absl::MutexLock lock(&mutex_);
  warnings_[stage] = warning;
}

void FakeWorker::HangStage(const std::string& stage, int64_t step) {
  absl::MutexLock lock(&mutex_);
  hangs_[Key(stage, step)] = true;
}

void FakeWorker::HangStart() {
  absl::MutexLock lock(&mutex_);
  start_hangs_ = true;
}

void FakeWorker::Release() {
  absl::MutexLock lock(&mutex_);
  for (auto& [key, hangs] : hangs_) hangs = false;
  start_hangs_ = false;
  changed_.SignalAll();
}

void FakeWorker::LoseStarts(bool lost) {
  absl::MutexLock lock(&mutex_);
  starts_lost_ = lost;
}

void FakeWorker::SetReachable(bool reachable) {
  absl::MutexLock lock(&mutex_);
  reachable_ = reachable;
  changed_.SignalAll();
}

void FakeWorker::IgnoreAsking() {
  absl::MutexLock lock(&mutex_);
  ignores_asking_ = true;
}

void FakeWorker::KillEngines(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  attempts_.clear();
  engines_gone_ = status;
  changed_.SignalAll();
}

void FakeWorker::AwaitStage(const std::string& stage, int64_t step) {
  absl::MutexLock lock(&mutex_);
  while (std::find(stages_.begin(), stages_.end(), Key(stage, step)) == stages_.end()) changed_.Wait(&mutex_);
}

void FakeWorker::AwaitStart() {
  absl::MutexLock lock(&mutex_);
  while (starts_ == 0) changed_.Wait(&mutex_);
}

int FakeWorker::engines_running() const {
  absl::MutexLock lock(&mutex_);
  size_t running = 0;
  for (const auto& [job_id, attempt] : attempts_) running += attempt.ranks.size();
  return static_cast<int>(running);
}

int FakeWorker::engines_ever_started() const {
  absl::MutexLock lock(&mutex_);
  return engines_started_;
}

int FakeWorker::engines_killed() const {
  absl::MutexLock lock(&mutex_);
  return engines_killed_;
}

int FakeWorker::starts_refused() const {
  absl::MutexLock lock(&mutex_);
  return starts_refused_;
}

double FakeWorker::last_grace_s() const {
  absl::MutexLock lock(&mutex_);
  return last_grace_s_;
}

std::vector<std::string> FakeWorker::stages() const {
  absl::MutexLock lock(&mutex_);
  return stages_;
}

std::vector<int32_t> FakeWorker::RanksAsked(const std::string& stage, int64_t step) const {
  absl::MutexLock lock(&mutex_);
  const auto found = ranks_asked_.find(Key(stage, step));
  return found == ranks_asked_.end() ? std::vector<int32_t>() : found->second;
}

std::set<int64_t> FakeWorker::checkpoints() const {
  absl::MutexLock lock(&mutex_);
  return checkpoints_;
}

v1::InitializeOp FakeWorker::last_initialize() const {
  absl::MutexLock lock(&mutex_);
  return last_initialize_;
}

std::string FakeWorker::last_resume_mode() const { return last_initialize().spec().trainer().resume_mode(); }

std::vector<v1::AttemptStatus> FakeWorker::attempts() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::AttemptStatus> statuses;
  for (const auto& [job_id, attempt] : attempts_) {
    v1::AttemptStatus& status = statuses.emplace_back();
    status.set_job_id(job_id);
    status.set_attempt(attempt.attempt);
    status.set_epoch(attempt.epoch);
    for (const int32_t rank : attempt.ranks) {
      v1::EngineStatus* engine = status.add_engines();
      engine->set_rank(rank);
      engine->set_running(true);
    }
  }
  return statuses;
}

void FakeWorker::AppendLog(const std::string& text) {
  absl::MutexLock lock(&mutex_);
  log_ += text;
}

absl::Status FakeWorker::Fence(const std::string& job_id, int64_t epoch) {
  if (!reachable_) return absl::UnavailableError("cannot connect");
  int64_t& newest = newest_epoch_[job_id];
  if (epoch < newest) return absl::FailedPreconditionError(absl::StrCat("epoch ", epoch, " is older than ", newest));
  newest = epoch;
  return absl::OkStatus();
}

absl::Status FakeWorker::Hang(const bool* hangs, const std::string* job_id, const CallOptions& options) {
  // The callback may run while this thread holds the lock, so it only flips a flag that the timed wait below sees.
  while (*hangs) {
    if (options.stop.stop_requested()) return absl::CancelledError("the caller gave up");
    if (job_id != nullptr && attempts_.count(*job_id) == 0) {
      return engines_gone_.ok() ? absl::AbortedError("the engine was stopped") : engines_gone_;
    }
    changed_.WaitWithTimeout(&mutex_, absl::Milliseconds(1));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::StartAttemptResponse> FakeWorker::StartAttempt(const v1::StartAttemptRequest& request,
                                                                  const CallOptions& options) {
  absl::MutexLock lock(&mutex_);
  ++starts_;
  changed_.SignalAll();
  if (starts_lost_) return absl::UnavailableError("the call was lost");
  if (const absl::Status fenced = Fence(request.job_id(), request.epoch()); !fenced.ok()) {
    ++starts_refused_;
    return fenced;
  }
  Attempt& attempt = attempts_[request.job_id()];
  engines_gone_ = absl::OkStatus();
  attempt.attempt = request.attempt();
  attempt.epoch = request.epoch();
  attempt.ranks.assign(request.ranks().begin(), request.ranks().end());
  engines_started_ += request.ranks_size();
  RETURN_IF_ERROR(Hang(&start_hangs_, nullptr, options));
  v1::StartAttemptResponse response;
  for (const int32_t rank : request.ranks()) {
    v1::StartedEngine* engine = response.add_engines();
    engine->set_rank(rank);
    engine->set_pid(1000 + rank);
    if (rank == 0 && request.world_size() > 1) engine->set_rendezvous_address("tcp:host:1234");
  }
  return response;
}

absl::StatusOr<v1::StopAttemptResponse> FakeWorker::StopAttempt(const v1::StopAttemptRequest& request,
                                                                const CallOptions& options) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Fence(request.job_id(), request.epoch()));
  last_grace_s_ = request.grace_s();
  v1::StopAttemptResponse response;
  const auto found = attempts_.find(request.job_id());
  if (found != attempts_.end()) {
    if (ignores_asking_) response.set_killed(static_cast<int32_t>(found->second.ranks.size()));
    engines_killed_ += response.killed();
    attempts_.erase(found);
  }
  changed_.SignalAll();
  return response;
}

v1::StageResponse FakeWorker::Answer(const v1::StageRequest& stage) {
  v1::StageResponse response;
  const int64_t step = StepOf(stage);
  switch (stage.op_case()) {
    case v1::StageRequest::kInitialize: {
      last_initialize_ = stage.initialize();
      v1::InitializeResult* result = response.mutable_initialize();
      result->set_total_steps(total_steps);
      result->set_steps_per_epoch(steps_per_epoch);
      result->set_device("cpu");
      if (stage.initialize().spec().trainer().resume_mode() == "auto" && !checkpoints_.empty()) {
        result->set_resumed_step(*checkpoints_.rbegin());
      }
      break;
    }
    case v1::StageRequest::kTrainBatch: {
      v1::StepMetrics* metrics = response.mutable_train_batch();
      metrics->set_step(step);
      metrics->set_epoch((step - 1) / steps_per_epoch);
      metrics->set_loss(10.0 / static_cast<double>(step));
      break;
    }
    case v1::StageRequest::kInferBatch:
      response.mutable_infer_batch()->set_step(step);
      response.mutable_infer_batch()->set_loss(5.0 - 0.1 * static_cast<double>(step));
      break;
    case v1::StageRequest::kSaveCheckpoint:
      checkpoints_.insert(step);
      response.mutable_save_checkpoint()->set_step(step);
      break;
    case v1::StageRequest::kDataflow: {
      v1::DataflowResult* result = response.mutable_dataflow();
      result->set_step(step);
      result->set_stage(stage.dataflow().stage());
      result->set_tokens(100);
      if (stage.dataflow().ends_step()) result->mutable_ended_step()->set_step(step);
      break;
    }
    case v1::StageRequest::kExportWeights:
      response.mutable_export_weights()->set_path(stage.export_weights().path());
      break;
    default:
      break;
  }
  return response;
}

absl::StatusOr<v1::RunStageResponse> FakeWorker::RunStage(const v1::RunStageRequest& request,
                                                          const CallOptions& options) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Fence(request.job_id(), request.epoch()));
  const std::string key = Key(StageName(request.stage()), StepOf(request.stage()));
  stages_.push_back(key);
  if (!request.ranks().empty()) ranks_asked_[key] = {request.ranks().begin(), request.ranks().end()};
  changed_.SignalAll();
  if (const auto failure = failures_.find(key); failure != failures_.end() && failure->second.second > 0) {
    --failure->second.second;
    return failure->second.first;
  }
  if (const auto hangs = hangs_.find(key); hangs != hangs_.end()) {
    RETURN_IF_ERROR(Hang(&hangs->second, &request.job_id(), options));
  }
  const auto attempt = attempts_.find(request.job_id());
  if (attempt == attempts_.end() || attempt->second.attempt != request.attempt()) {
    return engines_gone_.ok() ? absl::NotFoundError("no such attempt") : engines_gone_;
  }
  v1::RunStageResponse response;
  const auto& asked = request.ranks();
  for (const int32_t rank : attempt->second.ranks) {
    if (!asked.empty() && std::find(asked.begin(), asked.end(), rank) == asked.end()) continue;
    v1::RankStageResponse* answer = response.add_ranks();
    answer->set_rank(rank);
    *answer->mutable_response() = Answer(request.stage());
    const auto warning = warnings_.find(StageName(request.stage()));
    if (warning != warnings_.end()) answer->mutable_response()->add_warnings(warning->second);
  }
  return response;
}

absl::StatusOr<v1::ReadLogResponse> FakeWorker::ReadLog(const v1::ReadLogRequest& request, const CallOptions& options) {
  absl::MutexLock lock(&mutex_);
  if (!reachable_) return absl::UnavailableError("cannot connect");
  v1::ReadLogResponse response;
  if (request.offset() < static_cast<int64_t>(log_.size())) {
    response.set_data(log_.substr(static_cast<size_t>(request.offset()), static_cast<size_t>(request.max_bytes())));
  }
  return response;
}

}  // namespace sluice::controller::testing
