#include <utility>

#include "absl/time/clock.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "controller/dataflow/worker_client.h"
#include "grpcpp/client_context.h"
#include "sluice/v1/worker.grpc.pb.h"

namespace sluice::controller {
namespace {

class GrpcWorkerClient final : public WorkerClient {
 public:
  explicit GrpcWorkerClient(const std::string& address) : stub_(v1::WorkerService::NewStub(MakeChannel(address))) {}

  absl::StatusOr<v1::StartAttemptResponse> StartAttempt(const v1::StartAttemptRequest& request,
                                                        const CallOptions& options) override {
    return Call<v1::StartAttemptResponse>(&v1::WorkerService::Stub::StartAttempt, request, options);
  }
  absl::StatusOr<v1::StopAttemptResponse> StopAttempt(const v1::StopAttemptRequest& request,
                                                      const CallOptions& options) override {
    return Call<v1::StopAttemptResponse>(&v1::WorkerService::Stub::StopAttempt, request, options);
  }
  absl::StatusOr<v1::RunStageResponse> RunStage(const v1::RunStageRequest& request,
                                                const CallOptions& options) override {
    return Call<v1::RunStageResponse>(&v1::WorkerService::Stub::RunStage, request, options);
  }
  absl::StatusOr<v1::ReadLogResponse> ReadLog(const v1::ReadLogRequest& request, const CallOptions& options) override {
    return Call<v1::ReadLogResponse>(&v1::WorkerService::Stub::ReadLog, request, options);
  }

 private:
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(grpc::Status (v1::WorkerService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                                Response*),
                                const Request& request, const CallOptions& options) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
    std::stop_callback cancel(options.stop, [&context] { context.TryCancel(); });
    Response response;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }

  const std::unique_ptr<v1::WorkerService::Stub> stub_;
};

}  // namespace

WorkerClientFactory GrpcWorkerClientFactory() {
  return [](const std::string& address) { return std::make_shared<GrpcWorkerClient>(address); };
}

}  // namespace sluice::controller
