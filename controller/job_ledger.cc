#include "controller/job_ledger.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "controller/job_states.h"

namespace sluice::controller {
namespace {

// While the store refuses writes, at most this many events of a job are kept; later ones are lost, its progress is not.
constexpr size_t kMostNoted = 10'000;

}  // namespace

JobLedger::JobLedger(Store* store, const Clock* clock, Metrics* metrics)
    : store_(store), clock_(clock), metrics_(metrics) {
  CountJobs();
  flusher_ = std::thread([this] { FlushLoop(); });
}

JobLedger::~JobLedger() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  flusher_.join();
}

void JobLedger::SetListener(std::function<void(const std::string& job_id)> listener) {
  listener_ = std::move(listener);
}

void JobLedger::Announce(const std::string& job_id) {
  if (listener_) listener_(job_id);
}

void JobLedger::CountJobs() {
  const auto counts = store_->CountByState();
  if (!counts.ok()) return;
  for (const v1::JobState state : AllJobStates()) {
    metrics_->Set(MetricId::kJobs, {StateName(state)}, static_cast<double>((*counts)[state]));
  }
}

absl::StatusOr<AddedJob> JobLedger::AddJob(const RequestId& request, const v1::JobSpec& spec) {
  absl::StatusOr<AddedJob> added = store_->AddJob(request, spec, clock_->Now());
  if (added.ok() && added->created) {
    LoggerFor("jobs").Info(absl::StrCat(added->job.job_id(), " (", spec.name(), ") is queued"));
    CountJobs();
    Announce(added->job.job_id());
  }
  return added;
}

absl::StatusOr<v1::Job> JobLedger::Move(const std::string& job_id, v1::JobState from, v1::JobState to, Change change) {
  Flush(job_id);
  change.time = clock_->Now();
  absl::StatusOr<v1::Job> job = store_->Transition(job_id, from, to, change);
  if (!job.ok()) return job;
  LoggerFor("jobs").Info(absl::StrCat(job_id, " ", StateName(from), " -> ", StateName(to), ": ", change.message));
  const std::string reason = change.failure.has_value() ? ReasonName(change.failure->reason()) : "none";
  metrics_->Increment(MetricId::kJobTransitions, {StateName(from), StateName(to), reason});
  if (change.counts_as_restart) metrics_->Increment(MetricId::kJobRestarts, {reason});
  CountJobs();
  Announce(job_id);
  return job;
}

absl::StatusOr<AttemptRecord> JobLedger::BeginAttempt(const std::string& job_id, std::vector<Placement> placements,
                                                      Change change) {
  Flush(job_id);
  change.time = clock_->Now();
  auto record = store_->BeginAttempt(job_id, std::move(placements), change);
  if (!record.ok()) return record;
  LoggerFor("jobs").Info(
      absl::StrCat(job_id, " attempt ", record->attempt, " epoch ", record->epoch, ": ", change.message));
  metrics_->Increment(MetricId::kJobTransitions, {"QUEUED", "ADMITTED", "none"});
  CountJobs();
  Announce(job_id);
  return record;
}

void JobLedger::Note(const std::string& job_id, Happening happening, const v1::Progress* progress) {
  happening.time = clock_->Now();
  absl::MutexLock lock(&mutex_);
  Noted& noted = noted_[job_id];
  if (noted.happenings.size() < kMostNoted) noted.happenings.push_back(std::move(happening));
  if (progress != nullptr) noted.progress = *progress;
  if (noted_.size() == 1 && noted.happenings.size() == 1) changed_.SignalAll();
}

void JobLedger::Flush(const std::string& job_id) {
  absl::MutexLock write_lock(&write_mutex_);
  Noted noted;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = noted_.find(job_id);
    if (found == noted_.end()) return;
    noted = std::move(found->second);
    noted_.erase(found);
  }
  const std::string* message = nullptr;
  for (const Happening& happening : noted.happenings) {
    if (!happening.warning) message = &happening.message;
  }
  const auto job =
      store_->Append(job_id, noted.happenings, noted.progress.has_value() ? &*noted.progress : nullptr, message);
  if (job.ok()) {
    Announce(job_id);
    return;
  }
  if (absl::IsFailedPrecondition(job.status()) || absl::IsNotFound(job.status())) return;  // the job is over
  LoggerFor("jobs").Error(
      absl::StrCat(job_id, ": progress is not stored, will try again: ", std::string(job.status().message())));
  absl::MutexLock lock(&mutex_);
  Noted& newer = noted_[job_id];
  if (!newer.progress.has_value()) newer.progress = std::move(noted.progress);
  noted.happenings.insert(noted.happenings.end(), newer.happenings.begin(), newer.happenings.end());
  newer.happenings = std::move(noted.happenings);
}

void JobLedger::FlushLoop() {
  bool stopping = false;
  while (!stopping) {
    std::vector<std::string> job_ids;
    {
      absl::MutexLock lock(&mutex_);
      while (!stopping_ && noted_.empty()) changed_.Wait(&mutex_);
      // Wait a little for more, so that fast steps are written together.
      const absl::Time due = clock_->Now() + kFlushInterval;
      while (!stopping_ && clock_->Now() < due) clock_->WaitUntil(&mutex_, &changed_, due);
      stopping = stopping_;
      for (const auto& [job_id, noted] : noted_) job_ids.push_back(job_id);
    }
    for (const std::string& job_id : job_ids) Flush(job_id);
  }
}

}  // namespace sluice::controller
