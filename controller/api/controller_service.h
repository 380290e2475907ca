// ControllerService and WorkerRegistryService (controller.proto) over gRPC's callback API. Thin: checks of the requests
// and conversion; what is done is the manager's, the registry's and the store's.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "controller/api/executors.h"
#include "controller/api/log_reader.h"
#include "controller/api/watch_hub.h"
#include "controller/job_manager.h"
#include "controller/worker_registry.h"
#include "sluice/v1/controller.grpc.pb.h"

namespace sluice::controller {

// Judges a specification whole: InvalidArgument with every error and its path in the YAML.
using SpecValidator = std::function<absl::Status(const v1::JobSpec& spec)>;

class ControllerServiceImpl final : public v1::ControllerService::CallbackService {
 public:
  // REQUIRES: all outlive the service.
  struct Environment {
    JobManager* manager;
    Store* store;
    WorkerRegistry* registry;
    WatchHub* watches;
    Executors* executors;
    WorkerClientFactory clients;
    Metrics* metrics;
    SpecValidator validate;
    absl::Time start_time;
  };

  explicit ControllerServiceImpl(Environment environment) : environment_(std::move(environment)) {}

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context, const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(grpc::CallbackServerContext* context,
                                                           const v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context, const v1::CancelJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerWriteReactor<v1::GetJobLogsResponse>* GetJobLogs(grpc::CallbackServerContext* context,
                                                               const v1::GetJobLogsRequest* request) override;
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context, const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;

 private:
  absl::Status Submit(const v1::SubmitJobRequest& request, v1::SubmitJobResponse* response);
  absl::Status List(const v1::ListJobsRequest& request, v1::ListJobsResponse* response);

  const Environment environment_;
};

class WorkerRegistryServiceImpl final : public v1::WorkerRegistryService::CallbackService {
 public:
  // REQUIRES: all outlive the service.
  WorkerRegistryServiceImpl(JobManager* manager, WorkerRegistry* registry, Executors* executors, Metrics* metrics)
      : manager_(manager), registry_(registry), executors_(executors), metrics_(metrics) {}

  grpc::ServerUnaryReactor* RegisterWorker(grpc::CallbackServerContext* context,
                                           const v1::RegisterWorkerRequest* request,
                                           v1::RegisterWorkerResponse* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context, const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override;

 private:
  JobManager* const manager_;
  WorkerRegistry* const registry_;
  Executors* const executors_;
  Metrics* const metrics_;
};

// InvalidArgument: longer than 128 characters, or with characters that are not printable ASCII. Empty is fine: not
// repeatable.
absl::Status CheckRequestId(const std::string& request_id);

}  // namespace sluice::controller
