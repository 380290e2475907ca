// sluice-worker: the daemon that hosts engines on one machine.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "common/build_info.h"
#include "common/clock.h"
#include "common/grpc_channel.h"
#include "common/logging.h"
#include "worker/worker.h"

namespace {

constexpr int kUsageExitCode = 2;

}  // namespace

int main(int argc, char** argv) {
  sluice::QuietGrpcLogs();
  CLI::App app("Hosts the engines of a Sluice cluster on this machine.");
  sluice::worker::WorkerOptions options;
  std::string log_level = "info";
  double grace_s = 30;
  int silence_s = static_cast<int>(absl::ToInt64Seconds(options.engine_silence));
  app.add_option("--controller", options.controller_address, "Address of the controller, host:port or unix:path")
      ->required();
  app.add_option("--id", options.worker_id, "Name of this worker, stable over restarts (default: the host's name)");
  app.add_option("--listen", options.listen_address, "Address to listen on; port 0: any free one")
      ->capture_default_str();
  app.add_option("--advertise-host", options.advertise_host,
                 "Name or address at which others reach this host (default: as in --listen)");
  app.add_option("--metrics", options.metrics_address, "Address of /metrics, such as 127.0.0.1:9102 (default: none)");
  app.add_option("--state-dir", options.state_dir, "Folder for logs")->required();
  app.add_option("--engine", options.engine_binary, "The engine program (default: sluice-engine beside this one)");
  app.add_option("--rank-slots", options.rank_slots,
                 "Engines at once; 0: one for each GPU, or for each core where there is none")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_flag("--insecure-listen", options.insecure_listen, "Allow --listen on an address that other hosts can reach");
  app.add_flag("--reflection", options.reflection, "Serve gRPC reflection");
  app.add_option("--grace", grace_s, "Seconds that engines get to end at shutdown")->capture_default_str();
  app.add_option("--engine-silence", silence_s,
                 "Seconds after which an engine that answers nothing is killed; 0: never (under a debugger)")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  app.add_option("--log-level", log_level, "debug, info, warning, error or off")->capture_default_str();
  app.set_version_flag("--version", sluice::BuildVersion());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageExitCode;
  }
  options.engine_silence = absl::Seconds(silence_s);
  if (const absl::Status status = sluice::SetLogLevel(log_level); !status.ok()) {
    std::fprintf(stderr, "sluice-worker: --log-level: %s\n", std::string(status.message()).c_str());
    return kUsageExitCode;
  }

  // Blocked before any thread starts, so that only sigwait below sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const sluice::RealClock clock;
  auto worker = sluice::worker::Worker::Start(options, &clock);
  if (!worker.ok()) {
    std::fprintf(stderr, "sluice-worker: %s\n", std::string(worker.status().message()).c_str());
    return kUsageExitCode;
  }
  sluice::LoggerFor("worker").Info("listening on " + (*worker)->address());
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  sluice::LoggerFor("worker").Info("shutting down");
  (*worker)->Shutdown(absl::Seconds(grace_s));
  return 0;
}
