// sluice-controller: the controller as a daemon.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/time/time.h"
#include "common/build_info.h"
#include "common/clock.h"
#include "common/config/config_error.h"
#include "common/config/validate.h"
#include "common/grpc_channel.h"
#include "common/logging.h"
#include "controller/controller.h"

namespace {

constexpr int kExitUsage = 2;
constexpr int kExitUnavailable = 4;

std::string DefaultStateDir() {
  const char* state_home = std::getenv("XDG_STATE_HOME");
  if (state_home != nullptr && *state_home != '\0') return std::string(state_home) + "/sluice/controller";
  const char* home = std::getenv("HOME");
  return home != nullptr ? std::string(home) + "/.local/state/sluice/controller" : "sluice-controller-state";
}

int ExitCodeOf(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ? kExitUsage : kExitUnavailable;
}

}  // namespace

int main(int argc, char** argv) {
  sluice::controller::ControllerOptions options;
  options.state_dir = DefaultStateDir();
  std::string log_level = "info";
  double heartbeat_interval_s = 2, lease_s = 20, shutdown_deadline_s = 30;

  CLI::App app("The Sluice controller: keeps the queue of jobs and drives them on the workers.");
  app.add_option("--listen", options.listen_address,
                 "Where clients and workers connect: host:port or unix:path; port 0: any free one")
      ->capture_default_str();
  app.add_option("--state-dir", options.state_dir, "Folder of the store; made where it is not there")
      ->capture_default_str();
  app.add_option("--metrics", options.metrics_address, "host:port of /metrics for Prometheus; none where not given");
  app.add_flag("--reflection", options.reflection, "Let clients ask for the API's description");
  app.add_flag("--insecure-listen", options.insecure_listen,
               "Listen where other hosts can connect, without authentication");
  app.add_option("--heartbeat-interval", heartbeat_interval_s,
                 "Seconds between heartbeats of a worker; three missing make it suspect")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 600.0));
  app.add_option("--lease", lease_s, "Seconds after which engines without an answered heartbeat stop themselves")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 3600.0));
  app.add_option("--shutdown-deadline", shutdown_deadline_s,
                 "Seconds for running attempts to end when the controller is asked to stop")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--log-level", log_level, "debug, info, warning, error or off")->capture_default_str();
  app.set_version_flag("--version", std::string(sluice::BuildVersion()) + " " + sluice::BuildCommit());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (const absl::Status status = sluice::SetLogLevel(log_level); !status.ok()) {
    std::cerr << "sluice-controller: " << status.message() << "\n";
    return kExitUsage;
  }
  options.registry.heartbeat_interval = absl::Seconds(heartbeat_interval_s);
  options.registry.suspect_after = 3 * options.registry.heartbeat_interval;
  options.registry.lease = absl::Seconds(lease_s);
  options.registry.lost_after = options.registry.lease + absl::Seconds(5);
  if (options.registry.suspect_after >= options.registry.lease) {
    std::cerr << "sluice-controller: --lease must be longer than three times --heartbeat-interval\n";
    return kExitUsage;
  }
  options.validate = [](const sluice::v1::JobSpec& spec) { return sluice::ToStatus(sluice::ValidateJobSpec(spec)); };

  // Blocked here and so in every thread that starts later; only the sigwait below takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  sluice::QuietGrpcLogs();
  const sluice::RealClock clock;
  auto controller = sluice::controller::Controller::Start(options, &clock);
  if (!controller.ok()) {
    std::cerr << "sluice-controller: " << controller.status().message() << "\n";
    return ExitCodeOf(controller.status());
  }
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  // A second signal ends the process at once, as a user who repeats it wants; the store is made for that.
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  (*controller)->Shutdown(absl::Seconds(shutdown_deadline_s));
  return 0;
}
