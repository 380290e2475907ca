#include "controller/store/sqlite_store.h"

// Opening, the schema, transactions and statements. What is read and written is in sqlite_store_jobs.cc and
// sqlite_store_events.cc.

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/ids.h"
#include "common/status.h"
#include "common/status_macros.h"

namespace sluice::controller {
namespace {

constexpr int64_t kSchemaVersion = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& path,
                                                               std::function<void(absl::Duration)> on_commit,
                                                               const EventRetention& retention) {
  auto store = std::unique_ptr<SqliteStore>(new SqliteStore(std::move(on_commit), retention));
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
  event_counts_.clear();
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
