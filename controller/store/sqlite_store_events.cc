// What happens to a job: changes of its state, its attempts, and the events that tell of them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "controller/job_states.h"
#include "controller/store/job_numbers.h"
#include "controller/store/parse_record.h"
#include "controller/store/sqlite_store.h"

namespace sluice::controller {
namespace {

absl::Status WrongState(const v1::Job& job, v1::JobState wanted) {
  return absl::FailedPreconditionError(
      absl::StrCat(job.job_id(), " is ", StateName(job.state()), ", not ", StateName(wanted)));
}

}  // namespace

absl::Status SqliteStore::WriteEvent(int64_t number, v1::JobEvent event, v1::Job* job) {
  event.set_resource_version(++last_version_);
  event.set_state(job->state());
  ASSIGN_OR_RETURN(SqliteStatement * statement, Statement("INSERT INTO events VALUES (?, ?, ?)"));
  statement->BindInt(1, event.resource_version());
  statement->BindInt(2, number);
  statement->BindBytes(3, event.SerializeAsString());
  job->set_resource_version(event.resource_version());
  RETURN_IF_ERROR(statement->Step());
  return TrimEvents(number);
}

absl::Status SqliteStore::TrimEvents(int64_t number) {
  const auto counted = event_counts_.find(number);
  if (counted == event_counts_.end()) {
    ASSIGN_OR_RETURN(SqliteStatement * count, Statement("SELECT COUNT(*) FROM events WHERE job = ?"));
    count->BindInt(1, number);
    RETURN_IF_ERROR(count->Step());
    event_counts_[number] = count->Int(0);
    count->Reset();
  } else {
    ++counted->second;
  }
  if (event_counts_[number] <= retention_.most + retention_.slack) return absl::OkStatus();
  std::vector<EventSummary> events;
  ASSIGN_OR_RETURN(SqliteStatement * list, Statement("SELECT record FROM events WHERE job = ? ORDER BY version"));
  list->BindInt(1, number);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, list->Step());
    if (!more) break;
    v1::JobEvent event;
    RETURN_IF_ERROR(ParseRecord(list->Bytes(0), &event));
    events.push_back(Summarize(event));
  }
  const std::vector<int64_t> removed = EventsToRemove(events, retention_.most);
  for (const int64_t version : removed) {
    ASSIGN_OR_RETURN(SqliteStatement * remove, Statement("DELETE FROM events WHERE version = ?"));
    remove->BindInt(1, version);
    RETURN_IF_ERROR(remove->Step());
  }
  event_counts_[number] -= static_cast<int64_t>(removed.size());
  return absl::OkStatus();
}

absl::Status SqliteStore::MoveJob(int64_t number, v1::Job* job, v1::JobState to, const Change& change) {
  job->set_state(to);
  job->set_status_message(change.message);
  if (change.failure.has_value()) *job->mutable_failure() = *change.failure;
  if (to == v1::JOB_STATE_SUCCEEDED || to == v1::JOB_STATE_ADMITTED) job->clear_failure();
  if (change.output_path.has_value()) job->set_output_path(*change.output_path);
  if (to == v1::JOB_STATE_STARTING && !job->has_start_time()) *job->mutable_start_time() = ToTimestamp(change.time);
  if (IsTerminal(to)) {
    *job->mutable_end_time() = ToTimestamp(change.time);
    job->mutable_progress()->clear_eta_seconds();
  }
  if (change.counts_as_restart) {
    ASSIGN_OR_RETURN(SqliteStatement * restarts, Statement("UPDATE jobs SET restarts = restarts + 1 WHERE number = ?"));
    restarts->BindInt(1, number);
    RETURN_IF_ERROR(restarts->Step());
  }
  v1::JobEvent event;
  *event.mutable_time() = ToTimestamp(change.time);
  event.set_message(change.message);
  RETURN_IF_ERROR(WriteEvent(number, event, job));
  return WriteJob(number, *job);
}

absl::StatusOr<v1::Job> SqliteStore::Transition(const std::string& job_id, v1::JobState from, v1::JobState to,
                                                const Change& change) {
  if (!IsAllowedTransition(from, to) || to == v1::JOB_STATE_ADMITTED) {
    return absl::InvalidArgumentError(absl::StrCat("a job does not go from ", StateName(from), " to ", StateName(to)));
  }
  ASSIGN_OR_RETURN(const int64_t number, NumberOfJobId(job_id));
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(v1::Job job, ReadJob(number));
  if (job.state() != from) return WrongState(job, from);
  RETURN_IF_ERROR(
      InTransaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return MoveJob(number, &job, to, change); }));
  return job;
}

absl::StatusOr<AttemptRecord> SqliteStore::BeginAttempt(const std::string& job_id, std::vector<Placement> placements,
                                                        const Change& change) {
  ASSIGN_OR_RETURN(const int64_t number, NumberOfJobId(job_id));
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(v1::Job job, ReadJob(number));
  if (job.state() != v1::JOB_STATE_QUEUED) return WrongState(job, v1::JOB_STATE_QUEUED);
  AttemptRecord record;
  record.job_id = job_id;
  record.attempt = job.attempt() + 1;
  record.placements = std::move(placements);
  RETURN_IF_ERROR(InTransaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    ASSIGN_OR_RETURN(record.epoch, TakeEpoch());
    ASSIGN_OR_RETURN(SqliteStatement * insert, Statement("INSERT INTO attempts VALUES (?, ?, ?)"));
    insert->BindInt(1, number);
    insert->BindInt(2, record.attempt);
    insert->BindInt(3, record.epoch);
    RETURN_IF_ERROR(insert->Step());
    for (const Placement& placement : record.placements) {
      ASSIGN_OR_RETURN(SqliteStatement * place, Statement("INSERT INTO placements VALUES (?, ?, ?, ?, ?, ?)"));
      place->BindInt(1, number);
      place->BindInt(2, record.attempt);
      place->BindInt(3, placement.rank);
      place->BindText(4, placement.worker_id);
      place->BindText(5, placement.incarnation);
      place->BindText(6, placement.address);
      RETURN_IF_ERROR(place->Step());
    }
    job.set_attempt(record.attempt);
    return MoveJob(number, &job, v1::JOB_STATE_ADMITTED, change);
  }));
  return record;
}

absl::StatusOr<v1::Job> SqliteStore::Append(const std::string& job_id, const std::vector<Happening>& happenings,
                                            const v1::Progress* progress, const std::string* status_message) {
  ASSIGN_OR_RETURN(const int64_t number, NumberOfJobId(job_id));
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(v1::Job job, ReadJob(number));
  if (IsTerminal(job.state())) {
    return absl::FailedPreconditionError(
        absl::StrCat(job_id, " is ", StateName(job.state()), " and takes no more events"));
  }
  RETURN_IF_ERROR(InTransaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    if (progress != nullptr) *job.mutable_progress() = *progress;
    if (status_message != nullptr) job.set_status_message(*status_message);
    for (const Happening& happening : happenings) {
      v1::JobEvent event;
      *event.mutable_time() = ToTimestamp(happening.time);
      event.set_message(happening.message);
      if (happening.step.has_value()) *event.mutable_step() = *happening.step;
      if (happening.validation.has_value()) *event.mutable_validation() = *happening.validation;
      if (happening.checkpoint_step.has_value()) event.set_checkpoint_step(*happening.checkpoint_step);
      event.set_warning(happening.warning);
      event.mutable_spans()->Add(happening.spans.begin(), happening.spans.end());
      RETURN_IF_ERROR(WriteEvent(number, std::move(event), &job));
    }
    return WriteJob(number, job);
  }));
  return job;
}

absl::StatusOr<std::vector<v1::JobEvent>> SqliteStore::EventsSince(const std::string& job_id, int64_t after,
                                                                   int64_t limit) {
  ASSIGN_OR_RETURN(const int64_t number, NumberOfJobId(job_id));
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(ReadJob(number));
  ASSIGN_OR_RETURN(SqliteStatement * statement,
                   Statement("SELECT record FROM events WHERE job = ? AND version > ? ORDER BY version LIMIT ?"));
  statement->BindInt(1, number);
  statement->BindInt(2, after);
  statement->BindInt(3, limit);
  std::vector<v1::JobEvent> events;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement->Step());
    if (!more) break;
    RETURN_IF_ERROR(ParseRecord(statement->Bytes(0), &events.emplace_back()));
  }
  statement->Reset();
  return events;
}

absl::StatusOr<AttemptRecord> SqliteStore::GetAttempt(const std::string& job_id, int32_t attempt) {
  ASSIGN_OR_RETURN(const int64_t number, NumberOfJobId(job_id));
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(SqliteStatement * statement, Statement("SELECT epoch FROM attempts WHERE job = ? AND attempt = ?"));
  statement->BindInt(1, number);
  statement->BindInt(2, attempt);
  ASSIGN_OR_RETURN(const bool found, statement->Step());
  if (!found) return absl::NotFoundError(absl::StrCat(job_id, " has no attempt ", attempt));
  AttemptRecord record;
  record.job_id = job_id;
  record.attempt = attempt;
  record.epoch = statement->Int(0);
  statement->Reset();
  ASSIGN_OR_RETURN(SqliteStatement * places, Statement("SELECT rank, worker_id, incarnation, address FROM placements "
                                                       "WHERE job = ? AND attempt = ? ORDER BY rank"));
  places->BindInt(1, number);
  places->BindInt(2, attempt);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, places->Step());
    if (!more) break;
    record.placements.push_back(
        {static_cast<int32_t>(places->Int(0)), places->Bytes(1), places->Bytes(2), places->Bytes(3)});
  }
  places->Reset();
  return record;
}

absl::StatusOr<int32_t> SqliteStore::RestartsUsed(const std::string& job_id) {
  ASSIGN_OR_RETURN(const int64_t number, NumberOfJobId(job_id));
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(SqliteStatement * statement, Statement("SELECT restarts FROM jobs WHERE number = ?"));
  statement->BindInt(1, number);
  ASSIGN_OR_RETURN(const bool found, statement->Step());
  if (!found) return absl::NotFoundError(absl::StrCat("no such job: ", job_id));
  const auto restarts = static_cast<int32_t>(statement->Int(0));
  statement->Reset();
  return restarts;
}

}  // namespace sluice::controller
