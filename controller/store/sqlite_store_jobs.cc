// Jobs and the request ids that made them: adding, finding, listing, counting.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "controller/store/job_numbers.h"
#include "controller/store/parse_record.h"
#include "controller/store/sqlite_store.h"

namespace sluice::controller {
namespace {

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

}  // namespace

absl::StatusOr<v1::Job> SqliteStore::ReadJob(int64_t number) {
  ASSIGN_OR_RETURN(SqliteStatement * statement, Statement("SELECT record, spec FROM jobs WHERE number = ?"));
  statement->BindInt(1, number);
  ASSIGN_OR_RETURN(const bool found, statement->Step());
  if (!found) return absl::NotFoundError(absl::StrCat("no such job: ", JobIdOfNumber(number)));
  v1::Job job;
  RETURN_IF_ERROR(ParseRecord(statement->Bytes(0), &job));
  RETURN_IF_ERROR(ParseRecord(statement->Bytes(1), job.mutable_spec()));
  statement->Reset();
  return job;
}

absl::StatusOr<std::vector<v1::Job>> SqliteStore::ReadJobs(SqliteStatement* statement) {
  std::vector<v1::Job> jobs;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement->Step());
    if (!more) break;
    v1::Job& job = jobs.emplace_back();
    RETURN_IF_ERROR(ParseRecord(statement->Bytes(0), &job));
    RETURN_IF_ERROR(ParseRecord(statement->Bytes(1), job.mutable_spec()));
  }
  statement->Reset();
  return jobs;
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

}  // namespace sluice::controller
