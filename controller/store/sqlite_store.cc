#include "controller/store/sqlite_store.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/ids.h"
#include "common/proto_time.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "controller/job_states.h"
#include "controller/store/job_numbers.h"

namespace sluice::controller {
namespace {

constexpr int64_t kSchemaVersion = 1;

// Equal specs give equal bytes: map entries in one order.
std::string CanonicalBytes(const v1::JobSpec& spec) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  return bytes;
}

template <typename Message>
absl::Status Parse(const std::string& bytes, Message* message) {
  if (message->ParseFromString(bytes)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("store: a record of type ", message->GetTypeName(), " cannot be read"));
}

absl::Status WrongState(const v1::Job& job, v1::JobState wanted) {
  return absl::FailedPreconditionError(
      absl::StrCat(job.job_id(), " is ", StateName(job.state()), ", not ", StateName(wanted)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& path,
                                                               std::function<void(absl::Duration)> on_commit) {
  auto store = std::unique_ptr<SqliteStore>(new SqliteStore(std::move(on_commit)));
  absl::MutexLock lock(&store->mutex_);
  RETURN_IF_ERROR(Annotate(store->Initialize(path), path));
  return store;
}

absl::Status SqliteStore::Initialize(const std::string& path) {
  ASSIGN_OR_RETURN(database_, SqliteDatabase::Open(path));
  // EXCLUSIVE comes before WAL, so that the log needs no shared-memory file; the first transaction takes the lock for
  // good.
  RETURN_IF_ERROR(database_->Execute("PRAGMA locking_mode=EXCLUSIVE"));
  absl::Status opened = database_->Execute("PRAGMA journal_mode=WAL");
  if (opened.ok())
    opened = database_->Execute("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; BEGIN IMMEDIATE; COMMIT");
  if (absl::IsFailedPrecondition(opened)) {
    return absl::FailedPreconditionError("another controller has this store open (one store, one controller)");
  }
  RETURN_IF_ERROR(opened);
  RETURN_IF_ERROR(InTransaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return CreateTables(); }));

  ASSIGN_OR_RETURN(SqliteStatement * meta, Statement("SELECT store_id, schema_version FROM meta"));
  RETURN_IF_ERROR(meta->Step());
  store_id_ = meta->Bytes(0);
  const int64_t schema_version = meta->Int(1);
  meta->Reset();
  if (schema_version != kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat("store of schema version ", schema_version,
                                                      "; this controller reads version ", kSchemaVersion,
                                                      " (use the version of sluice that made it)"));
  }
  ASSIGN_OR_RETURN(SqliteStatement * last, Statement("SELECT COALESCE(MAX(version), 0) FROM events"));
  RETURN_IF_ERROR(last->Step());
  last_version_ = last->Int(0);
  last->Reset();
  return absl::OkStatus();
}

absl::Status SqliteStore::CreateTables() {
  ASSIGN_OR_RETURN(SqliteStatement * tables, Statement("SELECT COUNT(*) FROM sqlite_master WHERE name = 'meta'"));
  RETURN_IF_ERROR(tables->Step());
  const bool there = tables->Int(0) != 0;
  tables->Reset();
  if (there) return absl::OkStatus();
  RETURN_IF_ERROR(database_->Execute(R"sql(
    CREATE TABLE meta(
      one INTEGER PRIMARY KEY CHECK (one = 1), schema_version INTEGER NOT NULL, store_id TEXT NOT NULL, epoch INTEGER NOT NULL);
    CREATE TABLE jobs(
      number INTEGER PRIMARY KEY AUTOINCREMENT, state INTEGER NOT NULL, name TEXT NOT NULL,
      user TEXT NOT NULL, request_id TEXT, restarts INTEGER NOT NULL DEFAULT 0, spec BLOB NOT NULL, record BLOB NOT NULL);
    CREATE UNIQUE INDEX jobs_by_request ON jobs(user, request_id) WHERE request_id IS NOT NULL;
    CREATE INDEX jobs_by_state ON jobs(state, number);
    CREATE TABLE attempts(
      job INTEGER NOT NULL REFERENCES jobs(number), attempt INTEGER NOT NULL, epoch INTEGER NOT NULL,
      PRIMARY KEY (job, attempt)) WITHOUT ROWID;
    CREATE TABLE placements(
      job INTEGER NOT NULL, attempt INTEGER NOT NULL, rank INTEGER NOT NULL, worker_id TEXT NOT NULL, incarnation TEXT NOT NULL,
      address TEXT NOT NULL, PRIMARY KEY (job, attempt, rank)) WITHOUT ROWID;
    CREATE TABLE events(
      version INTEGER PRIMARY KEY, job INTEGER NOT NULL REFERENCES jobs(number), record BLOB NOT NULL);
    CREATE INDEX events_by_job ON events(job, version);
  )sql"));
  ASSIGN_OR_RETURN(SqliteStatement * meta, Statement("INSERT INTO meta VALUES (1, ?, ?, 0)"));
  meta->BindInt(1, kSchemaVersion);
  meta->BindText(2, NewUniqueId("store-"));
  return meta->Step().status();
}

absl::Status SqliteStore::InTransaction(const std::function<absl::Status()>& body) {
  RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  const int64_t version_before = last_version_;
  absl::Status status = body();
  // A statement that still has a row would keep the transaction open.
  for (auto& [sql, statement] : statements_) statement.Reset();
  if (status.ok()) {
    const absl::Time start = absl::Now();
    status = database_->Execute("COMMIT");
    if (status.ok()) {
      if (on_commit_) on_commit_(absl::Now() - start);
      return absl::OkStatus();
    }
  }
  last_version_ = version_before;
  // Fails where SQLite has rolled back by itself, as it does on a full disk.
  database_->Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::StatusOr<SqliteStatement*> SqliteStore::Statement(const std::string& sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) {
    ASSIGN_OR_RETURN(SqliteStatement statement, database_->Prepare(sql));
    found = statements_.emplace(sql, std::move(statement)).first;
  }
  found->second.Reset();
  return &found->second;
}

absl::StatusOr<v1::Job> SqliteStore::ReadJob(int64_t number) {
  ASSIGN_OR_RETURN(SqliteStatement * statement, Statement("SELECT record, spec FROM jobs WHERE number = ?"));
  statement->BindInt(1, number);
  ASSIGN_OR_RETURN(const bool found, statement->Step());
  if (!found) return absl::NotFoundError(absl::StrCat("no such job: ", JobIdOfNumber(number)));
  v1::Job job;
  RETURN_IF_ERROR(Parse(statement->Bytes(0), &job));
  RETURN_IF_ERROR(Parse(statement->Bytes(1), job.mutable_spec()));
  statement->Reset();
  return job;
}

absl::Status SqliteStore::WriteJob(int64_t number, const v1::Job& job) {
  // The spec never changes, so the record that is rewritten with each step goes without it.
  v1::Job record = job;
  record.clear_spec();
  ASSIGN_OR_RETURN(SqliteStatement * statement, Statement("UPDATE jobs SET state = ?, record = ? WHERE number = ?"));
  statement->BindInt(1, job.state());
  statement->BindBytes(2, record.SerializeAsString());
  statement->BindInt(3, number);
  return statement->Step().status();
}

absl::Status SqliteStore::WriteEvent(int64_t number, v1::JobEvent event, v1::Job* job) {
  event.set_resource_version(++last_version_);
  event.set_state(job->state());
  ASSIGN_OR_RETURN(SqliteStatement * statement, Statement("INSERT INTO events VALUES (?, ?, ?)"));
  statement->BindInt(1, event.resource_version());
  statement->BindInt(2, number);
  statement->BindBytes(3, event.SerializeAsString());
  job->set_resource_version(event.resource_version());
  return statement->Step().status();
}

absl::StatusOr<v1::Job> SqliteStore::FindRequest(const RequestId& request) {
  ASSIGN_OR_RETURN(SqliteStatement * statement, Statement("SELECT number FROM jobs WHERE user = ? AND request_id = ?"));
  statement->BindText(1, request.user);
  statement->BindText(2, request.id);
  ASSIGN_OR_RETURN(const bool found, statement->Step());
  if (!found) return absl::NotFoundError(absl::StrCat("request id ", request.id, " made no job"));
  const int64_t number = statement->Int(0);
  statement->Reset();
  return ReadJob(number);
}

absl::StatusOr<v1::Job> SqliteStore::JobOfRequest(const RequestId& request) {
  absl::MutexLock lock(&mutex_);
  return FindRequest(request);
}

absl::StatusOr<AddedJob> SqliteStore::AddJob(const RequestId& request, const v1::JobSpec& spec, absl::Time now) {
  const std::string canonical = CanonicalBytes(spec);
  absl::MutexLock lock(&mutex_);
  if (!request.id.empty()) {
    absl::StatusOr<v1::Job> existing = FindRequest(request);
    if (existing.ok()) {
      if (CanonicalBytes(existing->spec()) == canonical) return AddedJob{*std::move(existing), /*created=*/false};
      return absl::AlreadyExistsError(absl::StrCat("request_id ", request.id, " was used for ", existing->job_id(),
                                                   " with another spec (choose a new request_id for a new job)"));
    }
    if (!absl::IsNotFound(existing.status())) return existing.status();
  }
  AddedJob added;
  added.created = true;
  v1::Job& job = added.job;
  RETURN_IF_ERROR(InTransaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    ASSIGN_OR_RETURN(SqliteStatement * insert,
                     Statement("INSERT INTO jobs(state, name, user, request_id, spec, record) "
                               "VALUES (?, ?, ?, ?, ?, x'')"));
    insert->BindInt(1, v1::JOB_STATE_QUEUED);
    insert->BindText(2, spec.name());
    insert->BindText(3, request.user);
    if (request.id.empty()) {
      insert->BindNull(4);
    } else {
      insert->BindText(4, request.id);
    }
    insert->BindBytes(5, canonical);
    RETURN_IF_ERROR(insert->Step());
    const int64_t number = database_->LastInsertId();
    job.set_job_id(JobIdOfNumber(number));
    *job.mutable_spec() = spec;
    job.set_state(v1::JOB_STATE_QUEUED);
    job.set_status_message("queued");
    *job.mutable_create_time() = ToTimestamp(now);
    job.mutable_progress()->set_checkpoint_step(-1);
    v1::JobEvent event;
    *event.mutable_time() = ToTimestamp(now);
    event.set_message("queued");
    RETURN_IF_ERROR(WriteEvent(number, event, &job));
    return WriteJob(number, job);
  }));
  return added;
}

absl::StatusOr<v1::Job> SqliteStore::GetJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(const int64_t number, NumberOfJobId(job_id));
  absl::MutexLock lock(&mutex_);
  return ReadJob(number);
}

absl::StatusOr<std::vector<v1::Job>> SqliteStore::ReadJobs(SqliteStatement* statement) {
  std::vector<v1::Job> jobs;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement->Step());
    if (!more) break;
    v1::Job& job = jobs.emplace_back();
    RETURN_IF_ERROR(Parse(statement->Bytes(0), &job));
    RETURN_IF_ERROR(Parse(statement->Bytes(1), job.mutable_spec()));
  }
  statement->Reset();
  return jobs;
}

absl::StatusOr<JobPage> SqliteStore::ListJobs(const JobFilter& filter, int32_t page_size,
                                              const std::string& page_token) {
  int64_t below = INT64_MAX;
  if (!page_token.empty()) {
    ASSIGN_OR_RETURN(below, ParsePageToken(page_token, filter, store_id_));
  }
  // States are numbers of an enum, so they may stand in the text; names are bound.
  std::string where = " WHERE instr(name, ?) > 0";
  if (!filter.states.empty()) {
    absl::StrAppend(
        &where, " AND state IN (",
        absl::StrJoin(filter.states, ",",
                      [](std::string* out, v1::JobState state) { absl::StrAppend(out, static_cast<int>(state)); }),
        ")");
  }
  absl::MutexLock lock(&mutex_);
  JobPage page;
  ASSIGN_OR_RETURN(SqliteStatement count, database_->Prepare("SELECT COUNT(*) FROM jobs" + where));
  count.BindText(1, filter.name_contains);
  RETURN_IF_ERROR(count.Step());
  page.total_size = count.Int(0);
  ASSIGN_OR_RETURN(SqliteStatement list, database_->Prepare("SELECT record, spec FROM jobs" + where +
                                                            " AND number < ? ORDER BY number DESC LIMIT ?"));
  list.BindText(1, filter.name_contains);
  list.BindInt(2, below);
  list.BindInt(3, static_cast<int64_t>(page_size) + 1);  // one more tells whether there is a next page
  ASSIGN_OR_RETURN(page.jobs, ReadJobs(&list));
  if (page.jobs.size() > static_cast<size_t>(page_size)) {
    page.jobs.pop_back();
    ASSIGN_OR_RETURN(const int64_t last, NumberOfJobId(page.jobs.back().job_id()));
    page.next_page_token = MakePageToken(last, filter, store_id_);
  }
  return page;
}

absl::StatusOr<std::vector<v1::Job>> SqliteStore::UnfinishedJobs() {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(SqliteStatement * statement,
                   Statement("SELECT record, spec FROM jobs WHERE state < ? ORDER BY number"));
  static_assert(v1::JOB_STATE_CANCELLING < v1::JOB_STATE_SUCCEEDED && v1::JobState_MAX == v1::JOB_STATE_CANCELLED,
                "final states have the highest numbers");
  statement->BindInt(1, v1::JOB_STATE_SUCCEEDED);
  return ReadJobs(statement);
}

absl::StatusOr<std::vector<int64_t>> SqliteStore::CountByState() {
  absl::MutexLock lock(&mutex_);
  std::vector<int64_t> counts(v1::JobState_ARRAYSIZE, 0);
  ASSIGN_OR_RETURN(SqliteStatement * statement, Statement("SELECT state, COUNT(*) FROM jobs GROUP BY state"));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement->Step());
    if (!more) break;
    if (v1::JobState_IsValid(static_cast<int>(statement->Int(0)))) counts[statement->Int(0)] = statement->Int(1);
  }
  statement->Reset();
  return counts;
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
    RETURN_IF_ERROR(Parse(statement->Bytes(0), &events.emplace_back()));
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

absl::StatusOr<int64_t> SqliteStore::TakeEpoch() {
  RETURN_IF_ERROR(database_->Execute("UPDATE meta SET epoch = epoch + 1"));
  ASSIGN_OR_RETURN(SqliteStatement * statement, Statement("SELECT epoch FROM meta"));
  RETURN_IF_ERROR(statement->Step());
  const int64_t epoch = statement->Int(0);
  statement->Reset();
  return epoch;
}

absl::StatusOr<int64_t> SqliteStore::NextEpoch() {
  absl::MutexLock lock(&mutex_);
  int64_t epoch = 0;
  RETURN_IF_ERROR(InTransaction([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    ASSIGN_OR_RETURN(epoch, TakeEpoch());
    return absl::OkStatus();
  }));
  return epoch;
}

}  // namespace sluice::controller
