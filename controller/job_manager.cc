#include "controller/job_manager.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "controller/job_states.h"
#include "controller/scheduler/scheduler.h"
#include "controller/store/job_numbers.h"

namespace sluice::controller {
namespace {

// How often workers and cancels are looked at while nothing happens.
constexpr absl::Duration kTick = absl::Seconds(1);

int64_t NumberOf(const std::string& job_id) {
  const auto number = NumberOfJobId(job_id);
  return number.ok() ? *number : 0;
}

const char* DecisionName(Decision::Kind kind) {
  switch (kind) {
    case Decision::Kind::kStart:
      return "start";
    case Decision::Kind::kWait:
      return "wait";
    case Decision::Kind::kNotDue:
      return "backoff";
  }
  return "";
}

}  // namespace

JobManager::JobManager(AttemptRunner::Environment environment, WorkerRegistry* registry)
    : environment_(std::move(environment)), registry_(registry) {}

JobManager::~JobManager() { Shutdown(absl::InfinitePast()); }

absl::Status JobManager::Start() {
  ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, environment_.store->UnfinishedJobs());
  absl::MutexLock lock(&mutex_);
  for (const v1::Job& job : jobs) {
    if (job.state() == v1::JOB_STATE_QUEUED) {
      Enqueue(job, absl::InfinitePast());
      continue;
    }
    ASSIGN_OR_RETURN(const AttemptRecord record, environment_.store->GetAttempt(job.job_id(), job.attempt()));
    AddRunner(AttemptRunner::Mode::kEndOnly, job, record);
  }
  loop_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

void JobManager::Wake() {
  woken_ = true;
  changed_.SignalAll();
}

void JobManager::Enqueue(const v1::Job& job, absl::Time not_before) {
  const v1::JobSpec& spec = job.spec();
  Queued queued;
  queued.needs.job_id = job.job_id();
  queued.needs.hosts = std::max(1, spec.trainer().nnodes());
  queued.needs.ranks_per_host = std::max(1, spec.trainer().n_gpus_per_node());
  queued.needs.device = spec.engine().device().empty() ? "auto" : spec.engine().device();
  queued.needs.queued_at = job.attempt() == 0 ? FromTimestamp(job.create_time()) : environment_.clock->Now();
  queued.needs.not_before = not_before;
  queue_[NumberOf(job.job_id())] = std::move(queued);
  Wake();
}

void JobManager::AddRunner(AttemptRunner::Mode mode, const v1::Job& job, const AttemptRecord& record) {
  const auto losses = losses_.find(job.job_id());
  const int32_t losses_before = losses == losses_.end() ? 0 : losses->second;
  auto runner = std::make_unique<AttemptRunner>(mode, job, record, losses_before, environment_, [this] {
    absl::MutexLock lock(&mutex_);
    Wake();
  });
  AttemptRunner* started = runner.get();
  running_[job.job_id()] = std::move(runner);
  started->Start();
}

absl::StatusOr<v1::Job> JobManager::Submit(const RequestId& request, const v1::JobSpec& spec) {
  // Held over both, or a cancel between them would leave a cancelled job in the queue.
  absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::UnavailableError("the controller is shutting down");
  ASSIGN_OR_RETURN(const AddedJob added, environment_.ledger->AddJob(request, spec));
  if (added.created) Enqueue(added.job, absl::InfinitePast());
  return added.job;
}

absl::StatusOr<v1::Job> JobManager::Cancel(const std::string& job_id, const std::string& reason) {
  Change change;
  change.message = reason.empty() ? "cancelled" : absl::StrCat("cancelled: ", reason);
  // Ends: each turn the job is in a later state, and only a job that is queued again goes back.
  while (true) {
    ASSIGN_OR_RETURN(v1::Job job, environment_.store->GetJob(job_id));
    if (job.state() == v1::JOB_STATE_CANCELLED || job.state() == v1::JOB_STATE_CANCELLING) return job;
    if (IsTerminal(job.state())) {
      return absl::FailedPreconditionError(
          absl::StrCat(job_id, " is ", StateName(job.state()), " and cannot be cancelled"));
    }
    const v1::JobState to = job.state() == v1::JOB_STATE_QUEUED ? v1::JOB_STATE_CANCELLED : v1::JOB_STATE_CANCELLING;
    auto moved = environment_.ledger->Move(job_id, job.state(), to, change);
    if (absl::IsFailedPrecondition(moved.status())) continue;  // it moved on meanwhile
    if (!moved.ok()) return moved;
    absl::MutexLock lock(&mutex_);
    queue_.erase(NumberOf(job_id));
    losses_.erase(job_id);
    // Where there is no runner yet, its first move will find the job CANCELLING.
    const auto running = running_.find(job_id);
    if (to == v1::JOB_STATE_CANCELLING && running != running_.end()) running->second->Cancel(/*hurry=*/false);
    Wake();
    return moved;
  }
}

std::vector<v1::AttemptKey> JobManager::OnHeartbeat(const v1::HeartbeatRequest& request) {
  std::vector<v1::AttemptKey> stop;
  absl::MutexLock lock(&mutex_);
  for (const v1::AttemptStatus& status : request.attempts()) {
    const auto running = running_.find(status.job_id());
    if (running == running_.end() || running->second->done() || running->second->record().attempt != status.attempt()) {
      v1::AttemptKey& key = stop.emplace_back();
      key.set_job_id(status.job_id());
      key.set_attempt(status.attempt());
      continue;
    }
    for (const v1::EngineStatus& engine : status.engines()) {
      if (!engine.running() && engine.failure().reason() != v1::FAILURE_REASON_UNSPECIFIED)
        running->second->Lose(engine.failure());
    }
  }
  return stop;
}

void JobManager::WorkersChanged() {
  absl::MutexLock lock(&mutex_);
  Wake();
}

void JobManager::DescribeLoad(std::vector<v1::Worker>* workers) const {
  absl::MutexLock lock(&mutex_);
  for (v1::Worker& worker : *workers) {
    std::set<std::string> job_ids;
    for (const auto& [job_id, runner] : running_) {
      for (const Placement& placement : runner->record().placements) {
        if (placement.worker_id != worker.worker_id()) continue;
        worker.set_ranks_used(worker.ranks_used() + 1);
        job_ids.insert(job_id);
      }
    }
    for (const std::string& job_id : job_ids) worker.add_job_ids(job_id);
  }
}

void JobManager::Loop() {
  absl::Time next_tick = environment_.clock->Now() + kTick;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      while (!woken_ && !stopping_ && environment_.clock->Now() < next_tick) {
        environment_.clock->WaitUntil(&mutex_, &changed_, next_tick);
      }
      if (stopping_) return;
      woken_ = false;
    }
    // From before the looks: time that passes during them counts.
    next_tick = environment_.clock->Now() + kTick;
    HandleLosses();
    HurryCancels();
    Reap();
    SchedulePass();
  }
}

void JobManager::HandleLosses() {
  for (const WorkerLoss& loss : registry_->TakeLosses()) {
    absl::MutexLock lock(&mutex_);
    for (const auto& [job_id, runner] : running_) {
      for (const Placement& placement : runner->record().placements) {
        if (placement.worker_id != loss.worker_id || placement.incarnation != loss.incarnation) continue;
        v1::Failure failure;
        failure.set_reason(v1::FAILURE_REASON_WORKER_LOST);
        failure.set_rank(placement.rank);
        failure.set_message(loss.reason);
        runner->Lose(failure);
        break;
      }
    }
  }
}

void JobManager::HurryCancels() {
  const absl::Time now = environment_.clock->Now();
  absl::MutexLock lock(&mutex_);
  for (const auto& [job_id, runner] : running_) {
    const std::optional<absl::Time> cancel_time = runner->cancel_time();
    if (cancel_time.has_value() && now - *cancel_time >= environment_.options.cancel_save_limit)
      runner->Cancel(/*hurry=*/true);
  }
}

void JobManager::Reap() {
  std::vector<std::unique_ptr<AttemptRunner>> done;
  {
    absl::MutexLock lock(&mutex_);
    for (auto running = running_.begin(); running != running_.end();) {
      if (running->second->done()) {
        done.push_back(std::move(running->second));
        running = running_.erase(running);
      } else {
        ++running;
      }
    }
  }
  for (const std::unique_ptr<AttemptRunner>& runner : done) {
    absl::MutexLock lock(&mutex_);
    const auto job = environment_.store->GetJob(runner->record().job_id);
    if (!job.ok() || IsTerminal(job->state())) {
      losses_.erase(runner->record().job_id);
      continue;
    }
    losses_[runner->record().job_id] = runner->losses();
    if (job->state() == v1::JOB_STATE_QUEUED) {
      Enqueue(*job, runner->not_before());
    } else if (!stopping_) {
      // The store refused the runner's last change.
      AddRunner(AttemptRunner::Mode::kEndOnly, *job, runner->record());
    }
  }
}

void JobManager::SchedulePass() {
  const absl::Time now = environment_.clock->Now();
  std::vector<v1::Worker> workers = registry_->List();
  DescribeLoad(&workers);
  ClusterSnapshot cluster;
  int32_t slots = 0, used = 0;
  for (const v1::Worker& worker : workers) {
    const bool ready = worker.state() == v1::WORKER_STATE_READY;
    cluster.push_back(
        {worker.worker_id(), worker.resources().device(), worker.resources().rank_slots(), worker.ranks_used(), ready});
    if (ready) {
      slots += worker.resources().rank_slots();
      used += worker.ranks_used();
    }
  }
  environment_.metrics->Set(MetricId::kRankSlots, {"allocated"}, used);
  environment_.metrics->Set(MetricId::kRankSlots, {"free"}, slots - used);
  QueueSnapshot queue;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [number, queued] : queue_) queue.push_back(queued.needs);
  }
  if (queue.empty()) {
    environment_.metrics->Remove(MetricId::kJobOldestQueued, {});
    return;
  }
  environment_.metrics->Set(MetricId::kJobOldestQueued, {},
                            absl::ToDoubleSeconds(queue.front().queued_at - absl::UnixEpoch()));
  const std::vector<Decision> decisions = Schedule(now, cluster, queue);
  bool head_waits = false;
  for (size_t i = 0; i < decisions.size(); ++i) {
    const Decision& decision = decisions[i];
    const bool starts = decision.kind == Decision::Kind::kStart;
    environment_.metrics->Increment(MetricId::kSchedulerDecisions, {DecisionName(decision.kind)});
    if (starts) {
      std::vector<Placement> placements;
      for (const RankPlacement& rank : decision.ranks) {
        for (const v1::Worker& worker : workers) {
          if (worker.worker_id() != rank.worker_id) continue;
          placements.push_back({rank.rank, worker.worker_id(), worker.incarnation(), worker.address()});
        }
      }
      StartJob(decision.job_id, std::move(placements), decision.reason, queue[i].queued_at);
      continue;
    }
    // The job says itself that it waits for its restart, since it was queued again.
    if (head_waits || decision.kind == Decision::Kind::kNotDue) continue;
    head_waits = true;
    // Of the waiting jobs only the head's reason is stored, and only when it changes: the others just wait their turn.
    bool reason_changed = false;
    {
      absl::MutexLock lock(&mutex_);
      const auto queued = queue_.find(NumberOf(decision.job_id));
      if (queued != queue_.end() && queued->second.last_reason != decision.reason) {
        queued->second.last_reason = decision.reason;
        reason_changed = true;
      }
    }
    if (reason_changed) {
      Happening happening;
      happening.message = decision.reason;
      environment_.ledger->Note(decision.job_id, std::move(happening), nullptr);
    }
  }
  environment_.metrics->Observe(MetricId::kSchedulerCycleDuration, {},
                                absl::ToDoubleSeconds(environment_.clock->Now() - now));
}

void JobManager::StartJob(const std::string& job_id, std::vector<Placement> placements, const std::string& reason,
                          absl::Time queued_at) {
  // The job before the attempt: its progress tells what there is to resume from.
  auto job = environment_.store->GetJob(job_id);
  Change change;
  change.message = reason;
  const auto record = environment_.ledger->BeginAttempt(job_id, std::move(placements), change);
  absl::MutexLock lock(&mutex_);
  if (!record.ok() || !job.ok()) {
    const absl::Status& status = record.ok() ? job.status() : record.status();
    // A cancel came first. Anything else, such as a full disk, may pass: the job stays in the queue.
    if (absl::IsFailedPrecondition(status) || absl::IsNotFound(status)) {
      queue_.erase(NumberOf(job_id));
    } else {
      LoggerFor("scheduler").Error(absl::StrCat(job_id, " cannot be started: ", std::string(status.message())));
    }
    return;
  }
  queue_.erase(NumberOf(job_id));
  environment_.metrics->Observe(MetricId::kJobQueueWait, {},
                                absl::ToDoubleSeconds(environment_.clock->Now() - queued_at));
  job->set_state(v1::JOB_STATE_ADMITTED);
  AddRunner(AttemptRunner::Mode::kRun, *job, *record);
}

void JobManager::Shutdown(absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    Wake();
  }
  if (loop_.joinable()) loop_.join();
  std::map<std::string, std::unique_ptr<AttemptRunner>> ending;
  {
    absl::MutexLock lock(&mutex_);
    if (environment_.clock->Now() < deadline) {
      for (const auto& [job_id, runner] : running_) runner->ShutDown();
    }
    const auto all_done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      for (const auto& [job_id, runner] : running_) {
        if (!runner->done()) return false;
      }
      return true;
    };
    while (!all_done() && environment_.clock->Now() < deadline)
      environment_.clock->WaitUntil(&mutex_, &changed_, deadline);
    for (const auto& [job_id, runner] : running_) runner->Abandon();
    ending = std::move(running_);
    running_.clear();
  }
  // Outside the lock: a runner's last act takes it.
  ending.clear();
}

}  // namespace sluice::controller
