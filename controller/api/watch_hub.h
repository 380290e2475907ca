// The open WatchJob streams. Each reads its job's events from the store by pages of a bounded size, one write at a
// time, so a slow reader holds one page and never holds up anyone. A reader that takes nothing for too long is cut with
// RESOURCE_EXHAUSTED; it resumes from the last version it saw. One that does not even take that is broken off. Threads:
// all methods may be called from any thread.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "common/thread_pool.h"
#include "controller/store/store.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "sluice/v1/controller.pb.h"

namespace sluice::controller {

class WatchHub {
 public:
  static constexpr int64_t kPageEvents = 64;
  static constexpr absl::Duration kLongestWrite = absl::Seconds(60);

  // REQUIRES: all outlive the hub.
  WatchHub(Store* store, ThreadPool* pool, const Clock* clock, Metrics* metrics);
  // REQUIRES: no stream is open (CloseAll, and the server has shut down).
  ~WatchHub();

  // The reactor of one stream; deletes itself when gRPC is done with it.
  grpc::ServerWriteReactor<v1::WatchJobResponse>* Open(grpc::CallbackServerContext* context,
                                                       const v1::WatchJobRequest& request);

  // A job changed: its streams look again. Does not block.
  void Notify(const std::string& job_id);

  // Cuts streams whose write has been waiting for kLongestWrite, and breaks off those that were cut so long ago and are
  // still there: their reader takes nothing, so its end waits behind the write. Call every few seconds.
  void CutSlowReaders();

  // Ends all streams with UNAVAILABLE, and every one opened later.
  void CloseAll();

 private:
  class Stream;

  std::shared_ptr<Stream> Find(Stream* stream);
  void Remove(Stream* stream);
  // The open streams of one job, or of all.
  std::vector<std::shared_ptr<Stream>> Streams(const std::string* job_id);

  Store* const store_;
  ThreadPool* const pool_;
  const Clock* const clock_;
  Metrics* const metrics_;

  absl::Mutex mutex_;
  std::map<std::string, std::set<std::shared_ptr<Stream>>> streams_ ABSL_GUARDED_BY(mutex_);
  int64_t open_streams_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::controller
