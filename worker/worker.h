// The worker daemon: one for each host. Also embedded by `sluice run`.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace sluice::worker {

struct WorkerOptions {
  std::string controller_address;              // host:port or unix:path
  std::string worker_id;                       // empty: the host's name
  std::string listen_address = "127.0.0.1:0";  // port 0: the system chooses
  std::string advertise_host;   // how the controller and other workers reach us; empty: the listen address's host
  std::string metrics_address;  // empty: no /metrics
  std::string state_dir;        // logs are below it
  std::string engine_binary;    // empty: sluice-engine beside our own program
  absl::Duration engine_silence =
      absl::Seconds(7);          // an engine that answers nothing for so long is killed; zero: never
  int rank_slots = 0;            // 0: one for each GPU, or for each core where there is no GPU
  bool insecure_listen = false;  // listen off loopback without authentication
  bool reflection = false;
};

class Worker {
 public:
  // Listens and begins to register. InvalidArgument: an option is wrong (the message names it). FailedPrecondition: an
  // address is in use. REQUIRES: clock outlives the worker.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options, const Clock* clock);

  // As Shutdown with no grace, unless it was called.
  ~Worker();

  // Refuses new work, asks the engines to end, kills them after `grace`. Idempotent.
  void Shutdown(absl::Duration grace);

  // Where WorkerService listens.
  const std::string& address() const;
  // Port of /metrics; 0 without one.
  int metrics_port() const;

 private:
  struct Parts;
  explicit Worker(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::worker
