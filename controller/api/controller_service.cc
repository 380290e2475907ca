#include "controller/api/controller_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "controller/api/call_metrics.h"

namespace sluice::controller {
namespace {

constexpr size_t kLongestRequestId = 128;
constexpr int32_t kDefaultPage = 100;
constexpr int32_t kLargestPage = 1000;

}  // namespace

absl::Status CheckRequestId(const std::string& request_id) {
  const bool printable = std::all_of(request_id.begin(), request_id.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (request_id.size() <= kLongestRequestId && printable) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("request_id: must be at most ", kLongestRequestId,
                                                 " printable ASCII characters without spaces, has ", request_id.size(),
                                                 " bytes"));
}

absl::Status ControllerServiceImpl::Submit(const v1::SubmitJobRequest& request, v1::SubmitJobResponse* response) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  if (environment_.validate) RETURN_IF_ERROR(environment_.validate(request.spec()));
  RETURN_IF_ERROR(MakeJobPlan(request.spec()));
  if (request.validate_only()) {
    *response->mutable_job()->mutable_spec() = request.spec();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(*response->mutable_job(), environment_.manager->Submit({"", request.request_id()}, request.spec()));
  return absl::OkStatus();
}

absl::Status ControllerServiceImpl::List(const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
  if (request.page_size() < 0) return absl::InvalidArgumentError("page_size: must not be negative");
  JobFilter filter;
  filter.name_contains = request.name_contains();
  for (const int state : request.states()) filter.states.push_back(static_cast<v1::JobState>(state));
  const int32_t page_size = request.page_size() == 0 ? kDefaultPage : std::min(request.page_size(), kLargestPage);
  ASSIGN_OR_RETURN(JobPage page, environment_.store->ListJobs(filter, page_size, request.page_token()));
  for (v1::Job& job : page.jobs) *response->add_jobs() = std::move(job);
  response->set_next_page_token(page.next_page_token);
  response->set_total_size(page.total_size);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* ControllerServiceImpl::SubmitJob(grpc::CallbackServerContext* context,
                                                           const v1::SubmitJobRequest* request,
                                                           v1::SubmitJobResponse* response) {
  return RunUnary(context, "SubmitJob", &environment_.executors->calls, environment_.metrics,
                  [this, request, response] { return Submit(*request, response); });
}

grpc::ServerUnaryReactor* ControllerServiceImpl::GetJob(grpc::CallbackServerContext* context,
                                                        const v1::GetJobRequest* request, v1::Job* response) {
  return RunUnary(context, "GetJob", &environment_.executors->calls, environment_.metrics,
                  [this, request, response]() -> absl::Status {
                    ASSIGN_OR_RETURN(*response, environment_.store->GetJob(request->job_id()));
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* ControllerServiceImpl::ListJobs(grpc::CallbackServerContext* context,
                                                          const v1::ListJobsRequest* request,
                                                          v1::ListJobsResponse* response) {
  return RunUnary(context, "ListJobs", &environment_.executors->calls, environment_.metrics,
                  [this, request, response] { return List(*request, response); });
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* ControllerServiceImpl::WatchJob(grpc::CallbackServerContext* context,
                                                                                const v1::WatchJobRequest* request) {
  return environment_.watches->Open(context, *request);
}

grpc::ServerUnaryReactor* ControllerServiceImpl::CancelJob(grpc::CallbackServerContext* context,
                                                           const v1::CancelJobRequest* request, v1::Job* response) {
  return RunUnary(context, "CancelJob", &environment_.executors->calls, environment_.metrics,
                  [this, request, response]() -> absl::Status {
                    RETURN_IF_ERROR(CheckRequestId(request->request_id()));
                    ASSIGN_OR_RETURN(*response, environment_.manager->Cancel(request->job_id(), request->reason()));
                    return absl::OkStatus();
                  });
}

grpc::ServerWriteReactor<v1::GetJobLogsResponse>* ControllerServiceImpl::GetJobLogs(
    grpc::CallbackServerContext* context, const v1::GetJobLogsRequest* request) {
  return OpenLog({environment_.store, &environment_.executors->logs, environment_.clients}, *request);
}

grpc::ServerUnaryReactor* ControllerServiceImpl::ListWorkers(grpc::CallbackServerContext* context,
                                                             const v1::ListWorkersRequest* request,
                                                             v1::ListWorkersResponse* response) {
  return RunUnary(context, "ListWorkers", &environment_.executors->calls, environment_.metrics, [this, response] {
    std::vector<v1::Worker> workers = environment_.registry->List();
    environment_.manager->DescribeLoad(&workers);
    for (v1::Worker& worker : workers) *response->add_workers() = std::move(worker);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ControllerServiceImpl::GetServerInfo(grpc::CallbackServerContext* context,
                                                               const v1::GetServerInfoRequest* request,
                                                               v1::ServerInfo* response) {
  return RunUnary(context, "GetServerInfo", &environment_.executors->calls, environment_.metrics, [this, response] {
    response->set_version(BuildVersion());
    response->set_commit(BuildCommit());
    *response->mutable_start_time() = ToTimestamp(environment_.start_time);
    response->set_store_id(environment_.store->store_id());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* WorkerRegistryServiceImpl::RegisterWorker(grpc::CallbackServerContext* context,
                                                                    const v1::RegisterWorkerRequest* request,
                                                                    v1::RegisterWorkerResponse* response) {
  return RunUnary(context, "RegisterWorker", &executors_->heartbeats, metrics_,
                  [this, request, response]() -> absl::Status {
                    ASSIGN_OR_RETURN(*response, registry_->Register(*request));
                    manager_->WorkersChanged();
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* WorkerRegistryServiceImpl::Heartbeat(grpc::CallbackServerContext* context,
                                                               const v1::HeartbeatRequest* request,
                                                               v1::HeartbeatResponse* response) {
  return RunUnary(context, "Heartbeat", &executors_->heartbeats, metrics_, [this, request, response]() -> absl::Status {
    RETURN_IF_ERROR(registry_->Heartbeat(request->worker_id(), request->incarnation()));
    for (v1::AttemptKey& key : manager_->OnHeartbeat(*request)) *response->add_stop() = std::move(key);
    return absl::OkStatus();
  });
}

}  // namespace sluice::controller
