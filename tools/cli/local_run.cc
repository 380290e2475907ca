#include "tools/cli/local_run.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/config/validate.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "common/temporary_folder.h"
#include "controller/controller.h"
#include "tools/cli/client.h"
#include "worker/gpu_probe.h"
#include "worker/worker.h"

namespace sluice::cli {
namespace {

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

}  // namespace

void BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

absl::StatusOr<v1::Job> RunHere(
    const v1::JobSpec& spec, const LocalRunOptions& options,
    const std::function<void(const std::string& controller, const v1::WatchJobResponse& update)>& on_update) {
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

  ASSIGN_OR_RETURN(v1::Job job, client.Watch(submitted.job().job_id(), 0, [&](const v1::WatchJobResponse& update) {
    on_update(controller->address(), update);
  }));
  worker->Shutdown(absl::Seconds(10));
  controller->Shutdown(absl::Seconds(10));
  const bool crashed = job.state() == v1::JOB_STATE_FAILED && job.failure().reason() != v1::FAILURE_REASON_INVALID;
  if (crashed) {
    state.Keep();
    std::fprintf(stderr, "logs: %s/logs\n", state.path().c_str());
  }
  return job;
}

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

}  // namespace sluice::cli
