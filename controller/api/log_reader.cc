#include "controller/api/log_reader.h"

#include <memory>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/grpc_status.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "controller/job_states.h"
#include "grpcpp/alarm.h"

namespace sluice::controller {
namespace {

constexpr int64_t kPieceBytes = 64 << 10;

class LogStream : public grpc::ServerWriteReactor<v1::GetJobLogsResponse> {
 public:
  LogStream(const LogReaderEnvironment& environment, const v1::GetJobLogsRequest& request)
      : environment_(environment), request_(request), offset_(request.offset()) {}

  void Begin(std::shared_ptr<LogStream> self) {
    absl::MutexLock lock(&mutex_);
    self_ = std::move(self);
    Schedule();
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (!ok) return FinishLocked(absl::CancelledError("the client is gone"));
    Schedule();
  }

  void OnCancel() override {
    stop_.request_stop();
    absl::MutexLock lock(&mutex_);
    FinishLocked(absl::CancelledError("the client is gone"));
  }

  void OnDone() override {
    std::shared_ptr<LogStream> last;  // a task of the pool or an alarm may still hold one
    absl::MutexLock lock(&mutex_);
    last = std::move(self_);
  }

 private:
  void Schedule() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    environment_.pool->Submit([self = self_] { self->Step(); });
  }

  void ScheduleLater() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    // An alarm keeps its function when it has called it, so the function lets go of the stream that owns the alarm.
    alarm_.Set(absl::ToChronoTime(absl::Now() + environment_.poll_interval), [self = self_](bool) mutable {
      const std::shared_ptr<LogStream> stream = std::move(self);
      absl::MutexLock lock(&stream->mutex_);
      stream->Schedule();
    });
  }

  // Reads one piece and writes it, waits, or ends the stream.
  void Step() {
    bool at_end = false;
    absl::StatusOr<std::string> data = Read(&at_end);
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    if (!data.ok()) return FinishLocked(data.status());
    if (data->empty()) return at_end ? FinishLocked(absl::OkStatus()) : ScheduleLater();
    response_.set_offset(offset_);
    response_.set_data(*std::move(data));
    offset_ += static_cast<int64_t>(response_.data().size());
    StartWrite(&response_);
  }

  // The next bytes; none where there are none yet. `at_end`: nothing will follow, or nobody waits for it.
  absl::StatusOr<std::string> Read(bool* at_end) {
    // The job first: a log of a job that was final before it was read does not grow.
    ASSIGN_OR_RETURN(const v1::Job job, environment_.store->GetJob(request_.job_id()));
    *at_end = !request_.follow() || IsTerminal(job.state());
    const int32_t attempt = request_.attempt() > 0 ? request_.attempt() : job.attempt();
    if (attempt == 0) {
      if (!*at_end) return std::string();
      return absl::FailedPreconditionError(
          absl::StrCat(request_.job_id(), " has no logs: no attempt was made (it is ", StateName(job.state()), ")"));
    }
    if (attempt != read_attempt_) {
      if (read_attempt_ != 0) offset_ = 0;  // the newest is followed, and there is a newer one
      read_attempt_ = attempt;
      client_.reset();
    }
    if (client_ == nullptr) {
      ASSIGN_OR_RETURN(const AttemptRecord record, environment_.store->GetAttempt(request_.job_id(), attempt));
      for (const Placement& placement : record.placements) {
        if (placement.rank == request_.rank()) client_ = environment_.clients(placement.address);
      }
      if (client_ == nullptr)
        return absl::NotFoundError(absl::StrCat(request_.job_id(), " has no rank ", request_.rank()));
    }
    v1::ReadLogRequest read;
    read.set_job_id(request_.job_id());
    read.set_attempt(attempt);
    read.set_rank(request_.rank());
    read.set_offset(offset_);
    read.set_max_bytes(kPieceBytes);
    auto piece = client_->ReadLog(read, {absl::Seconds(10), stop_.get_token()});
    if (!piece.ok()) {
      // The engine is being started: its log is not there yet.
      if (absl::IsNotFound(piece.status()) && !*at_end) return std::string();
      return Annotate(piece.status(), absl::StrCat("log of ", request_.job_id(), " rank ", request_.rank()));
    }
    // The end of one attempt is not the end of a job that may have another.
    if (piece->end() && request_.attempt() > 0) *at_end = true;
    return std::move(*piece->mutable_data());
  }

  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    finished_ = true;
    Finish(ToGrpcStatus(status));
  }

  const LogReaderEnvironment environment_;
  const v1::GetJobLogsRequest request_;
  std::stop_source stop_;

  // Used by Step only, which never runs twice at once.
  int64_t offset_;
  int32_t read_attempt_ = 0;
  std::shared_ptr<WorkerClient> client_;
  v1::GetJobLogsResponse response_;

  absl::Mutex mutex_;
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<LogStream> self_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerWriteReactor<v1::GetJobLogsResponse>* OpenLog(const LogReaderEnvironment& environment,
                                                          const v1::GetJobLogsRequest& request) {
  auto stream = std::make_shared<LogStream>(environment, request);
  LogStream* reactor = stream.get();
  reactor->Begin(std::move(stream));
  return reactor;
}

}  // namespace sluice::controller
