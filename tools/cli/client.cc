#include "tools/cli/client.h"

#include <grpcpp/client_context.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/ids.h"
#include "common/status_macros.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(30);
constexpr absl::Duration kReconnectFor = absl::Minutes(1);
constexpr absl::Duration kReconnectPause = absl::Seconds(1);

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED || state == v1::JOB_STATE_CANCELLED;
}

}  // namespace

Client::Client(const std::string& address)
    : address_(address), stub_(v1::ControllerService::NewStub(MakeChannel(address))) {}

absl::Status Client::Explain(const grpc::Status& status) const {
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(
        absl::StrCat("no controller answers at ", address_, " (", status.error_message(),
                     "); start sluice-controller, or name its address with --controller or SLUICE_CONTROLLER"));
  }
  return FromGrpcStatus(status);
}

template <typename Request, typename Response>
absl::StatusOr<Response> Client::Call(Method<Request, Response> method, const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  Response response;
  RETURN_IF_ERROR(Explain((stub_.get()->*method)(&context, request, &response)));
  return response;
}

absl::StatusOr<v1::SubmitJobResponse> Client::Submit(const v1::SubmitJobRequest& request) {
  return Call(&v1::ControllerService::StubInterface::SubmitJob, request);
}

absl::StatusOr<v1::Job> Client::Get(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return Call(&v1::ControllerService::StubInterface::GetJob, request);
}

absl::StatusOr<v1::ListJobsResponse> Client::List(const v1::ListJobsRequest& request) {
  return Call(&v1::ControllerService::StubInterface::ListJobs, request);
}

absl::StatusOr<v1::Job> Client::Cancel(const std::string& job_id, const std::string& reason) {
  v1::CancelJobRequest request;
  request.set_job_id(job_id);
  request.set_request_id(NewUniqueId("cancel-"));
  request.set_reason(reason);
  return Call(&v1::ControllerService::StubInterface::CancelJob, request);
}

absl::StatusOr<v1::ListWorkersResponse> Client::Workers() {
  return Call(&v1::ControllerService::StubInterface::ListWorkers, v1::ListWorkersRequest());
}

absl::StatusOr<v1::ServerInfo> Client::ServerInfo() {
  return Call(&v1::ControllerService::StubInterface::GetServerInfo, v1::GetServerInfoRequest());
}

absl::StatusOr<v1::Job> Client::Watch(const std::string& job_id, int64_t after_resource_version,
                                      const std::function<void(const v1::WatchJobResponse&)>& on_update) {
  absl::Time last_heard = absl::Now();
  for (;;) {
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_job_id(job_id);
    request.set_after_resource_version(after_resource_version);
    const auto stream = stub_->WatchJob(&context, request);
    v1::WatchJobResponse update;
    while (stream->Read(&update)) {
      after_resource_version = std::max(after_resource_version, update.event().resource_version());
      last_heard = absl::Now();
      on_update(update);
    }
    const grpc::Status status = stream->Finish();
    if (status.ok()) {
      ASSIGN_OR_RETURN(v1::Job job, Get(job_id));
      if (IsFinal(job.state())) return job;
    } else if (status.error_code() != grpc::StatusCode::UNAVAILABLE &&
               status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) {
      return Explain(status);
    } else if (absl::Now() - last_heard > kReconnectFor) {
      return Explain(status);
    }
    absl::SleepFor(kReconnectPause);
  }
}

absl::StatusOr<v1::Job> Client::History(const std::string& job_id,
                                        const std::function<void(const v1::JobEvent&)>& on_event) {
  ASSIGN_OR_RETURN(v1::Job job, Get(job_id));
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_job_id(job_id);
  const auto stream = stub_->WatchJob(&context, request);
  v1::WatchJobResponse update;
  while (stream->Read(&update)) {
    on_event(update.event());
    if (update.event().resource_version() < job.resource_version()) continue;
    // All of a final job's events are there too, and the stream would end by itself; of another it would go on.
    context.TryCancel();
    stream->Finish();
    return job;
  }
  RETURN_IF_ERROR(Explain(stream->Finish()));
  return job;
}

absl::Status Client::Logs(const v1::GetJobLogsRequest& request,
                          const std::function<void(const std::string&)>& on_data) {
  grpc::ClientContext context;
  const auto stream = stub_->GetJobLogs(&context, request);
  v1::GetJobLogsResponse piece;
  while (stream->Read(&piece)) on_data(piece.data());
  return Explain(stream->Finish());
}

}  // namespace sluice::cli
