#include "worker/worker.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/grpc_channel.h"
#include "common/ids.h"
#include "common/listen_address.h"
#include "common/logging.h"
#include "common/metrics_server.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "worker/gpu_probe.h"
#include "worker/registration.h"
#include "worker/supervisor.h"
#include "worker/worker_service.h"

namespace sluice::worker {
namespace {

std::string HostName() {
  char name[256] = "worker";
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string EngineBesideUs() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / "sluice-engine").string();
}

int64_t HostMemoryBytes() { return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE); }

}  // namespace

struct Worker::Parts {
  // Destroyed from the last to the first: first nobody asks us any more, then the engines go, then what they report to.
  std::shared_ptr<Metrics> metrics;
  std::unique_ptr<MetricsServer> metrics_server;
  std::unique_ptr<Supervisor> supervisor;
  std::unique_ptr<WorkerServiceImpl> service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Registration> registration;
  std::string address;
  bool shut_down = false;
};

Worker::Worker(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options, const Clock* clock) {
  ASSIGN_OR_RETURN(const ListenAddress listen, ParseListenAddress(options.listen_address));
  if (!IsLocalOnly(listen) && !options.insecure_listen) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", options.listen_address,
                     " can be reached from other hosts and calls are not authenticated; "
                     "listen on 127.0.0.1, or add --insecure-listen on a network that you trust"));
  }
  RETURN_IF_ERROR(CheckNotInUse(listen));
  SupervisorOptions supervisor;
  supervisor.engine_silence = options.engine_silence;
  supervisor.engine_binary = options.engine_binary.empty() ? EngineBesideUs() : options.engine_binary;
  if (access(supervisor.engine_binary.c_str(), X_OK) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("no engine program at ", supervisor.engine_binary, "; name it with --engine"));
  }
  const std::vector<Gpu> gpus = ProbeGpus();
  supervisor.cpu_cores = std::max(1u, std::thread::hardware_concurrency());
  for (const Gpu& gpu : gpus) supervisor.gpu_ids.push_back(gpu.id);
  supervisor.rank_slots = options.rank_slots;
  if (supervisor.rank_slots == 0)
    supervisor.rank_slots = gpus.empty() ? supervisor.cpu_cores : static_cast<int>(gpus.size());
  supervisor.log_dir = options.state_dir + "/logs";
  supervisor.host = !options.advertise_host.empty() ? options.advertise_host
                    : listen.is_unix                ? "127.0.0.1"
                                                    : listen.host;

  auto parts = std::make_unique<Parts>();
  parts->metrics = std::make_shared<Metrics>(MetricRole::kWorker);
  if (!options.metrics_address.empty()) {
    ASSIGN_OR_RETURN(parts->metrics_server, MetricsServer::Start(options.metrics_address, parts->metrics));
  }
  ASSIGN_OR_RETURN(parts->supervisor, Supervisor::Create(supervisor, parts->metrics.get()));
  parts->service =
      std::make_unique<WorkerServiceImpl>(parts->supervisor.get(), parts->metrics.get(), supervisor.rank_slots);

  grpc::EnableDefaultHealthCheckService(true);
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  ApplyServerLimits(&builder);
  int port = 0;
  builder.AddListeningPort(options.listen_address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(parts->service.get());
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on ", options.listen_address,
                     ": it is in use or not an address of this host; choose another --listen"));
  }
  parts->address = FormatAddress(listen, port);

  RegistrationOptions registration;
  registration.worker.set_worker_id(options.worker_id.empty() ? HostName() : options.worker_id);
  registration.worker.set_incarnation(NewUniqueId("incarnation-"));
  ListenAddress advertised = listen;
  if (!listen.is_unix) advertised.host = supervisor.host;
  registration.worker.set_address(FormatAddress(advertised, port));
  registration.worker.set_version(BuildVersion());
  v1::WorkerResources* resources = registration.worker.mutable_resources();
  resources->set_rank_slots(supervisor.rank_slots);
  resources->set_device(gpus.empty() ? "cpu" : "cuda");
  resources->set_cpu_cores(supervisor.cpu_cores);
  resources->set_memory_bytes(HostMemoryBytes());
  for (const Gpu& gpu : gpus) resources->add_gpu_names(gpu.name);
  parts->registration =
      std::make_unique<Registration>(v1::WorkerRegistryService::NewStub(MakeChannel(options.controller_address)),
                                     std::move(registration), parts->supervisor.get(), parts->metrics.get(), clock);
  return std::unique_ptr<Worker>(new Worker(std::move(parts)));
}

Worker::~Worker() { Shutdown(absl::ZeroDuration()); }

void Worker::Shutdown(absl::Duration grace) {
  if (parts_->shut_down) return;
  parts_->shut_down = true;
  parts_->registration.reset();
  parts_->supervisor->Shutdown(grace);
  // Every call's engine is gone, so what still runs ends now.
  parts_->server->Shutdown(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  parts_->server->Wait();
}

const std::string& Worker::address() const { return parts_->address; }

int Worker::metrics_port() const { return parts_->metrics_server == nullptr ? 0 : parts_->metrics_server->port(); }

}  // namespace sluice::worker
