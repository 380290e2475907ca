// The controller, whole: store, queue, workers, API, metrics. `sluice-controller` is one of these; `sluice run` embeds
// one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "controller/dataflow/attempt_options.h"
#include "controller/worker_registry.h"
#include "sluice/v1/job.pb.h"

namespace sluice::controller {

struct ControllerOptions {
  std::string listen_address = "127.0.0.1:7070";  // port 0: the system chooses; or unix:path
  std::string state_dir;                          // the store is `controller.db` in it; made where it is not there
  std::string metrics_address;                    // host:port; empty: no /metrics
  bool insecure_listen = false;                   // listen off loopback without authentication
  bool reflection = false;
  RegistryOptions registry;
  AttemptOptions attempt;
  // Judges a specification whole (InvalidArgument with every error); empty: only what the driver itself needs is
  // checked.
  std::function<absl::Status(const v1::JobSpec& spec)> validate;
  // The metrics to write to, so that an embedding program has one page; null: its own.
  std::shared_ptr<Metrics> metrics;
};

class Controller {
 public:
  // Opens the store, takes up what it holds and serves. REQUIRES: clock outlives the controller.
  // InvalidArgument: an option is wrong. FailedPrecondition: an address or the store is in use, or the store is of a
  // newer version.
  static absl::StatusOr<std::unique_ptr<Controller>> Start(const ControllerOptions& options, const Clock* clock);

  // As Shutdown with no time to wait, unless it was called.
  ~Controller();

  // Refuses new work, ends running attempts and queues their jobs again for the next controller, answers open calls;
  // what is not done after `deadline` is broken off. The second call does nothing.
  void Shutdown(absl::Duration deadline);

  // Where clients connect: the listen address with the port in use.
  const std::string& address() const;
  // Port of /metrics; 0 without one.
  int metrics_port() const;

 private:
  struct Parts;
  explicit Controller(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::controller
