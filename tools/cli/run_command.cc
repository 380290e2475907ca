// sluice run: controller, worker and engines of one job in one command on one machine.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/config/validate.h"
#include "common/ids.h"
#include "common/logging.h"
#include "common/status_macros.h"
#include "common/temporary_folder.h"
#include "controller/controller.h"
#include "tools/cli/client.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/job_arguments.h"
#include "tools/cli/job_view.h"
#include "worker/gpu_probe.h"
#include "worker/worker.h"

namespace sluice::cli {
namespace {

struct RunOptions {
  JobArguments job;
  bool dry_run = false;
  bool verbose = false;
  std::string metrics_address;
  std::string engine_binary;
};

// The first SIGINT or SIGTERM cancels the job, so that its engines end in order; the second ends this process, and its
// children with it. REQUIRES: both signals are blocked in every thread.
void CancelOnSignal(const std::string& address, const std::string& job_id) {
  std::thread([address, job_id] {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    int signal_number = 0;
    sigwait(&signals, &signal_number);
    std::fprintf(stderr, "\ncancelling; once more to stop at once\n");
    static_cast<void>(Client(address).Cancel(job_id, absl::StrCat("interrupted by ", strsignal(signal_number))));
    sigwait(&signals, &signal_number);
    _exit(128 + signal_number);
  }).detach();
}

void BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

absl::StatusOr<v1::Job> RunJob(const v1::JobSpec& spec, const RunOptions& options, Format format) {
  static const RealClock clock;
  // The run's own state: the store, sockets, logs.
  ASSIGN_OR_RETURN(TemporaryFolder state, TemporaryFolder::Create("sluice-run-"));
  controller::ControllerOptions controller_options;
  controller_options.listen_address = absl::StrCat("unix:", state.path(), "/controller.sock");
  controller_options.state_dir = state.path();
  controller_options.registry.heartbeat_interval = absl::Milliseconds(500);
  controller_options.validate = [](const v1::JobSpec& job) { return ToStatus(ValidateJobSpec(job)); };
  ASSIGN_OR_RETURN(const auto controller, controller::Controller::Start(controller_options, &clock));

  worker::WorkerOptions worker_options;
  worker_options.controller_address = controller->address();
  worker_options.worker_id = "local";
  worker_options.listen_address = absl::StrCat("unix:", state.path(), "/worker.sock");
  worker_options.metrics_address = options.metrics_address;
  worker_options.state_dir = state.path();
  worker_options.engine_binary = options.engine_binary;
  worker_options.rank_slots = spec.trainer().n_gpus_per_node();
  ASSIGN_OR_RETURN(const auto worker, worker::Worker::Start(worker_options, &clock));

  Client client(controller->address());
  v1::SubmitJobRequest request;
  request.set_request_id(NewUniqueId("run-"));
  *request.mutable_spec() = spec;
  ASSIGN_OR_RETURN(const v1::SubmitJobResponse submitted, client.Submit(request));
  CancelOnSignal(controller->address(), submitted.job().job_id());

  JobView view(format);
  ASSIGN_OR_RETURN(v1::Job job, client.Watch(submitted.job().job_id(), 0,
                                             [&](const v1::WatchJobResponse& update) { view.Show(update); }));
  worker->Shutdown(absl::Seconds(10));
  controller->Shutdown(absl::Seconds(10));
  view.Finish(job);
  const bool crashed = job.state() == v1::JOB_STATE_FAILED && job.failure().reason() != v1::FAILURE_REASON_INVALID;
  if (crashed) {
    state.Keep();
    std::fprintf(stderr, "logs: %s/logs\n", state.path().c_str());
  }
  return job;
}

// What a job may ask of this one machine. A cluster would let it wait for a worker that fits; here none will come.
absl::Status CheckFitsThisHost(const v1::JobSpec& spec) {
  if (spec.trainer().nnodes() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer.nnodes: ", spec.trainer().nnodes(),
                     " hosts are asked for and `sluice run` uses this one; start "
                     "sluice-controller and a sluice-worker on each host, and use `sluice submit`"));
  }
  if (spec.engine().device() != "cuda") return absl::OkStatus();
  const size_t gpus = worker::ProbeGpus().size();
  if (gpus == 0) {
    return absl::InvalidArgumentError(
        "engine.device: cuda is asked for and the driver finds no GPU on this host; use engine.device=cpu, or check it "
        "with nvidia-smi");
  }
  if (static_cast<size_t>(spec.trainer().n_gpus_per_node()) > gpus) {
    return absl::InvalidArgumentError(absl::StrCat("trainer.n_gpus_per_node: ", spec.trainer().n_gpus_per_node(),
                                                   " GPUs are asked for and this host has ", gpus));
  }
  return absl::OkStatus();
}

int Run(const RunOptions& options, Format format) {
  auto spec = LoadJobArguments(options.job, /*check_files=*/true);
  if (!spec.ok()) return ReportError(spec.status());
  if (const absl::Status fits = CheckFitsThisHost(*spec); !fits.ok()) return ReportError(fits);
  if (options.dry_run) {
    std::printf("%s is valid\n", options.job.file.c_str());
    return kOk;
  }
  // Before any thread starts, so that none of them takes the signals.
  BlockSignals();
  static_cast<void>(SetLogLevel(options.verbose ? "info" : "warning"));
  const auto job = RunJob(*spec, options, format);
  return job.ok() ? ExitCodeOf(*job) : ReportError(job.status());
}

}  // namespace

void AddRunCommand(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto* command = app.add_subcommand("run", "Run a job here and now: controller, worker and engines in one command");
  auto options = std::make_shared<RunOptions>();
  AddJobArguments(command, &options->job);
  command->add_flag("--dry-run", options->dry_run, "Only check the job");
  command->add_flag("-v,--verbose", options->verbose, "Show what controller and worker log");
  command->add_option("--metrics", options->metrics_address,
                      "Serve /metrics there while the job runs, such as 127.0.0.1:9102");
  command->add_option("--engine", options->engine_binary,
                      "The engine program (default: sluice-engine beside this one)");
  command->callback(
      [options, &global, &action] { action = [options, &global] { return Run(*options, global.format); }; });
}

}  // namespace sluice::cli
