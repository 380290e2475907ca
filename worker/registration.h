// Keeps this worker known to its controller: registers, sends heartbeats, does what the answers ask for.
//
// When no heartbeat was answered for the lease, the controller may have given the worker up and started its jobs
// elsewhere: all attempts here are stopped. They are not restarted here; the controller decides.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "sluice/v1/controller.grpc.pb.h"
#include "worker/supervisor.h"

namespace sluice::worker {

struct RegistrationOptions {
  v1::RegisterWorkerRequest worker;  // what is announced
  absl::Duration retry_interval = absl::Seconds(1);
};

class Registration {
 public:
  // Starts a thread of its own. REQUIRES: supervisor, metrics and clock outlive it.
  Registration(std::unique_ptr<v1::WorkerRegistryService::StubInterface> controller, RegistrationOptions options,
               Supervisor* supervisor, Metrics* metrics, const Clock* clock);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  void Run();
  // One exchange with the controller; returns how long to wait before the next.
  absl::Duration Exchange();
  bool Register();
  bool Beat();
  bool Wait(absl::Duration duration);

  const std::unique_ptr<v1::WorkerRegistryService::StubInterface> controller_;
  const RegistrationOptions options_;
  Supervisor* const supervisor_;
  Metrics* const metrics_;
  const Clock* const clock_;

  // Used by the thread only.
  bool registered_ = false;
  absl::Duration heartbeat_interval_ = absl::Seconds(1);
  absl::Duration lease_ = absl::InfiniteDuration();
  absl::Time last_answer_;
  bool lease_lost_ = false;
  std::string last_error_;

  absl::Mutex mutex_;
  absl::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::worker
