#include "controller/api/watch_hub.h"

#include <cassert>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "controller/job_states.h"

namespace sluice::controller {

// A stream is idle, reading (a task on the pool) or writing. It reads when it is notified or has written its page, and
// remembers a notification that comes meanwhile.
class WatchHub::Stream : public grpc::ServerWriteReactor<v1::WatchJobResponse> {
 public:
  Stream(WatchHub* hub, grpc::CallbackServerContext* context, const v1::WatchJobRequest& request)
      : hub_(hub), job_id_(request.job_id()), context_(context), last_version_(request.after_resource_version()) {}

  const std::string& job_id() const { return job_id_; }

  void Wake(std::shared_ptr<Stream> self) {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    if (reading_ || !page_.empty()) {
      notified_ = true;
      return;
    }
    StartReading(std::move(self));
  }

  // Ends the stream. The client sees the status when it has taken what is being written.
  void End(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    FinishLocked(status);
  }

  // Ends or breaks off the stream where it is due. True: its end begins now.
  bool CutIfSlow(absl::Time now) {
    absl::MutexLock lock(&mutex_);
    if (page_.empty() || now - write_start_ < kLongestWrite) return false;
    if (!finished_) {
      FinishLocked(absl::ResourceExhaustedError(
          "the reader was too slow and was cut; watch again with after_resource_version of the last event it saw"));
      write_start_ = now;
      return true;
    }
    if (context_ != nullptr) context_->TryCancel();
    return false;
  }

  void OnWriteDone(bool ok) override {
    std::shared_ptr<Stream> self = hub_->Find(this);
    absl::MutexLock lock(&mutex_);
    if (finished_) return page_.clear();
    if (!ok) return FinishLocked(absl::CancelledError("the client is gone"));
    page_.pop_front();
    if (!page_.empty()) {
      WriteFront();
    } else if (self != nullptr) {
      StartReading(std::move(self));
    }
  }

  void OnCancel() override { End(absl::CancelledError("the client is gone")); }

  void OnDone() override {
    {
      absl::MutexLock lock(&mutex_);
      context_ = nullptr;
    }
    hub_->Remove(this);
  }

 private:
  void StartReading(std::shared_ptr<Stream> self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    reading_ = true;
    notified_ = false;
    hub_->pool_->Submit([self = std::move(self)] { self->Read(self); });
  }

  void Read(std::shared_ptr<Stream> self) {
    int64_t after = 0;
    {
      absl::MutexLock lock(&mutex_);
      if (finished_) return;
      after = last_version_;
    }
    // The job first: when it is final and there are no events after it was read, there never will be.
    absl::StatusOr<v1::Job> job = hub_->store_->GetJob(job_id_);
    absl::StatusOr<std::vector<v1::JobEvent>> events = std::vector<v1::JobEvent>();
    if (job.ok()) events = hub_->store_->EventsSince(job_id_, after, kPageEvents);
    absl::MutexLock lock(&mutex_);
    reading_ = false;
    if (finished_) return;
    if (!job.ok()) return FinishLocked(job.status());
    if (!events.ok()) return FinishLocked(events.status());
    if (events->empty()) {
      if (IsTerminal(job->state())) return FinishLocked(absl::OkStatus());
      if (notified_) StartReading(std::move(self));
      return;
    }
    last_version_ = events->back().resource_version();
    for (v1::JobEvent& event : *events) {
      v1::WatchJobResponse& response = page_.emplace_back();
      *response.mutable_event() = std::move(event);
      *response.mutable_job() = *job;
    }
    WriteFront();
  }

  void WriteFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    write_start_ = hub_->clock_->Now();
    StartWrite(&page_.front());
  }

  void FinishLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    finished_ = true;
    // What is being written stays until gRPC has done with it.
    if (page_.size() > 1) page_.erase(std::next(page_.begin()), page_.end());
    Finish(ToGrpcStatus(status));
  }

  WatchHub* const hub_;
  const std::string job_id_;

  absl::Mutex mutex_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mutex_);  // null from OnDone on, when it goes
  int64_t last_version_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::WatchJobResponse> page_ ABSL_GUARDED_BY(mutex_);  // the front one is being written
  absl::Time write_start_ ABSL_GUARDED_BY(mutex_);
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

WatchHub::WatchHub(Store* store, ThreadPool* pool, const Clock* clock, Metrics* metrics)
    : store_(store), pool_(pool), clock_(clock), metrics_(metrics) {}

WatchHub::~WatchHub() {
  absl::MutexLock lock(&mutex_);
  assert(streams_.empty());
}

std::shared_ptr<WatchHub::Stream> WatchHub::Find(Stream* stream) {
  absl::MutexLock lock(&mutex_);
  for (const std::shared_ptr<Stream>& open : streams_[stream->job_id()]) {
    if (open.get() == stream) return open;
  }
  return nullptr;
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchHub::Open(grpc::CallbackServerContext* context,
                                                               const v1::WatchJobRequest& request) {
  auto stream = std::make_shared<Stream>(this, context, request);
  bool closed = false;
  {
    absl::MutexLock lock(&mutex_);
    closed = closed_;
    streams_[request.job_id()].insert(stream);
    metrics_->Set(MetricId::kWatchStreams, {}, ++open_streams_);
  }
  if (closed) {
    stream->End(absl::UnavailableError("the controller is shutting down"));
  } else {
    stream->Wake(stream);
  }
  return stream.get();
}

void WatchHub::Remove(Stream* stream) {
  std::shared_ptr<Stream> removed;  // destroyed after the lock is released
  absl::MutexLock lock(&mutex_);
  const auto of_job = streams_.find(stream->job_id());
  for (auto open = of_job->second.begin(); open != of_job->second.end(); ++open) {
    if (open->get() != stream) continue;
    removed = *open;
    of_job->second.erase(open);
    metrics_->Set(MetricId::kWatchStreams, {}, --open_streams_);
    break;
  }
  if (of_job->second.empty()) streams_.erase(of_job);
}

std::vector<std::shared_ptr<WatchHub::Stream>> WatchHub::Streams(const std::string* job_id) {
  std::vector<std::shared_ptr<Stream>> streams;
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, of_job] : streams_) {
    if (job_id == nullptr || id == *job_id) streams.insert(streams.end(), of_job.begin(), of_job.end());
  }
  return streams;
}

void WatchHub::Notify(const std::string& job_id) {
  for (const std::shared_ptr<Stream>& stream : Streams(&job_id)) stream->Wake(stream);
}

void WatchHub::CutSlowReaders() {
  const absl::Time now = clock_->Now();
  for (const std::shared_ptr<Stream>& stream : Streams(nullptr)) {
    if (stream->CutIfSlow(now)) metrics_->Increment(MetricId::kWatchCut);
  }
}

void WatchHub::CloseAll() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  for (const std::shared_ptr<Stream>& stream : Streams(nullptr)) {
    stream->End(absl::UnavailableError("the controller is shutting down"));
  }
}

}  // namespace sluice::controller
