#include "controller/controller.h"

#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/grpc_channel.h"
#include "common/listen_address.h"
#include "common/logging.h"
#include "common/metrics_server.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "controller/api/controller_service.h"
#include "controller/job_manager.h"
#include "controller/store/sqlite_store.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace sluice::controller {
namespace {

constexpr char kStoreFile[] = "controller.db";
constexpr absl::Duration kUpkeepInterval = absl::Seconds(5);
// What calls get to be answered after the jobs have been ended.
constexpr absl::Duration kCallsGrace = absl::Seconds(2);

}  // namespace

// In the order of construction; destroyed from the last to the first, when nothing runs any more.
struct Controller::Parts {
  const Clock* clock = nullptr;
  std::string address;
  std::shared_ptr<Metrics> metrics;
  std::unique_ptr<MetricsServer> metrics_server;
  std::unique_ptr<SqliteStore> store;
  std::unique_ptr<JobLedger> ledger;
  std::unique_ptr<WorkerRegistry> registry;
  std::unique_ptr<JobManager> manager;
  std::unique_ptr<Executors> executors;
  std::unique_ptr<WatchHub> watches;
  std::unique_ptr<ControllerServiceImpl> controller_service;
  std::unique_ptr<WorkerRegistryServiceImpl> registry_service;
  std::unique_ptr<grpc::Server> server;

  absl::Mutex mutex;
  absl::CondVar changed;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool shut_down = false;
  std::thread upkeep;

  absl::Status OpenStore(const ControllerOptions& options);
  absl::Status Serve(const ControllerOptions& options, const ListenAddress& listen);
  void Upkeep();
};

absl::Status Controller::Parts::OpenStore(const ControllerOptions& options) {
  if (options.state_dir.empty()) return absl::InvalidArgumentError("the controller needs a state folder");
  std::error_code error;
  std::filesystem::create_directories(options.state_dir, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("state folder ", options.state_dir, ": cannot be made: ", error.message()));
  }
  const auto path = std::filesystem::path(options.state_dir) / kStoreFile;
  Metrics* const to = metrics.get();
  ASSIGN_OR_RETURN(store, SqliteStore::Open(path.string(), [to](absl::Duration took) {
                     to->Observe(MetricId::kStoreCommitDuration, {}, absl::ToDoubleSeconds(took));
                   }));
  return absl::OkStatus();
}

absl::Status Controller::Parts::Serve(const ControllerOptions& options, const ListenAddress& listen) {
  RETURN_IF_ERROR(CheckNotInUse(listen));
  grpc::EnableDefaultHealthCheckService(true);
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  ApplyServerLimits(&builder);
  int port = listen.port;
  builder.AddListeningPort(FormatAddress(listen, listen.port), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(controller_service.get());
  builder.RegisterService(registry_service.get());
  server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot listen on ", options.listen_address, " (is another controller running there? Choose another address)"));
  }
  address = FormatAddress(listen, port);
  grpc::HealthCheckServiceInterface* health = server->GetHealthCheckService();
  health->SetServingStatus(v1::ControllerService::service_full_name(), true);
  health->SetServingStatus(v1::WorkerRegistryService::service_full_name(), true);
  return absl::OkStatus();
}

void Controller::Parts::Upkeep() {
  while (true) {
    {
      absl::MutexLock lock(&mutex);
      const absl::Time due = clock->Now() + kUpkeepInterval;
      while (!stopping && clock->Now() < due) clock->WaitUntil(&mutex, &changed, due);
      if (stopping) return;
    }
    watches->CutSlowReaders();
  }
}

absl::StatusOr<std::unique_ptr<Controller>> Controller::Start(const ControllerOptions& options, const Clock* clock) {
  ASSIGN_OR_RETURN(const ListenAddress listen, ParseListenAddress(options.listen_address));
  if (!IsLocalOnly(listen) && !options.insecure_listen) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen address ", options.listen_address,
                     " can be reached from other hosts and there is no authentication; listen on "
                     "127.0.0.1 or a unix socket, or say --insecure-listen on a network you trust"));
  }
  RETURN_IF_ERROR(CheckListenable(listen));
  auto parts = std::make_unique<Parts>();
  parts->clock = clock;
  parts->metrics = options.metrics != nullptr ? options.metrics : std::make_shared<Metrics>(MetricRole::kController);
  RETURN_IF_ERROR(parts->OpenStore(options));
  if (!options.metrics_address.empty()) {
    ASSIGN_OR_RETURN(parts->metrics_server, MetricsServer::Start(options.metrics_address, parts->metrics));
  }
  Metrics* const metrics = parts->metrics.get();
  const WorkerClientFactory clients = GrpcWorkerClientFactory();
  parts->ledger = std::make_unique<JobLedger>(parts->store.get(), clock, metrics);
  parts->registry = std::make_unique<WorkerRegistry>(options.registry, clock, metrics);
  parts->manager = std::make_unique<JobManager>(
      AttemptRunner::Environment{parts->ledger.get(), parts->store.get(), parts->registry.get(), clients, clock,
                                 metrics, options.attempt},
      parts->registry.get());
  parts->executors = std::make_unique<Executors>();
  parts->watches = std::make_unique<WatchHub>(parts->store.get(), &parts->executors->calls, clock, metrics);
  parts->ledger->SetListener([watches = parts->watches.get()](const std::string& job_id) { watches->Notify(job_id); });
  parts->controller_service = std::make_unique<ControllerServiceImpl>(ControllerServiceImpl::Environment{
      parts->manager.get(), parts->store.get(), parts->registry.get(), parts->watches.get(), parts->executors.get(),
      clients, metrics, options.validate, clock->Now()});
  parts->registry_service = std::make_unique<WorkerRegistryServiceImpl>(parts->manager.get(), parts->registry.get(),
                                                                        parts->executors.get(), metrics);
  RETURN_IF_ERROR(parts->Serve(options, listen));
  auto controller = std::unique_ptr<Controller>(new Controller(std::move(parts)));
  // Last: from here on jobs move. Calls that came before wait in the queue.
  RETURN_IF_ERROR(controller->parts_->manager->Start());
  controller->parts_->upkeep = std::thread([parts = controller->parts_.get()] { parts->Upkeep(); });
  LoggerFor("controller").Info(absl::StrCat("listens on ", controller->address(), ", state in ", options.state_dir));
  return controller;
}

Controller::Controller(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Controller::~Controller() { Shutdown(absl::ZeroDuration()); }

const std::string& Controller::address() const { return parts_->address; }

int Controller::metrics_port() const { return parts_->metrics_server == nullptr ? 0 : parts_->metrics_server->port(); }

void Controller::Shutdown(absl::Duration deadline) {
  if (std::exchange(parts_->shut_down, true)) return;
  LoggerFor("controller").Info("shuts down");
  const absl::Time end = parts_->clock->Now() + deadline;
  parts_->server->GetHealthCheckService()->Shutdown();
  {
    absl::MutexLock lock(&parts_->mutex);
    parts_->stopping = true;
    parts_->changed.SignalAll();
  }
  if (parts_->upkeep.joinable()) parts_->upkeep.join();
  // Workers may still call while their engines end: their heartbeats keep the lease, and users see how it goes.
  parts_->manager->Shutdown(end);
  parts_->watches->CloseAll();
  parts_->server->Shutdown(absl::ToChronoTime(absl::Now() + kCallsGrace));
  parts_->server->Wait();
  // The flusher may still tell of jobs: it ends before the streams' hub goes, and the pools end with every task done.
  parts_->manager.reset();
  parts_->ledger.reset();
  parts_->executors.reset();
}

}  // namespace sluice::controller
