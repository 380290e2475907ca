#include "worker/worker_service.h"

#include <grpcpp/support/server_callback.h>

#include <utility>

#include "absl/time/clock.h"
#include "common/grpc_status.h"

namespace sluice::worker {
namespace {

// A stage without a deadline of the caller's gets one all the same.
constexpr absl::Duration kLongestStage = absl::Hours(24);

// Runs `body` on `threads` and answers with its result.
template <typename Response, typename Body>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const char* method, ThreadPool* threads,
                                 Metrics* metrics, Response* response, Body body) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Time start = absl::Now();
  threads->Submit([=, body = std::move(body)] {
    absl::StatusOr<Response> result = body();
    if (result.ok()) *response = *std::move(result);
    metrics->Increment(MetricId::kGrpcServerRequests, {method, absl::StatusCodeToString(result.status().code())});
    metrics->Observe(MetricId::kGrpcServerRequestDuration, {method}, absl::ToDoubleSeconds(absl::Now() - start));
    reactor->Finish(ToGrpcStatus(result.status()));
  });
  return reactor;
}

}  // namespace

WorkerServiceImpl::WorkerServiceImpl(Supervisor* supervisor, Metrics* metrics, int rank_slots)
    : supervisor_(supervisor),
      metrics_(metrics),
      stage_threads_(2 * rank_slots + 1),  // an engine runs a stage, and one beside it
      control_threads_(rank_slots + 1),
      log_threads_(2) {}

grpc::ServerUnaryReactor* WorkerServiceImpl::StartAttempt(grpc::CallbackServerContext* context,
                                                          const v1::StartAttemptRequest* request,
                                                          v1::StartAttemptResponse* response) {
  return Answer(context, "StartAttempt", &control_threads_, metrics_, response,
                [=, this] { return supervisor_->StartAttempt(*request); });
}

grpc::ServerUnaryReactor* WorkerServiceImpl::StopAttempt(grpc::CallbackServerContext* context,
                                                         const v1::StopAttemptRequest* request,
                                                         v1::StopAttemptResponse* response) {
  return Answer(context, "StopAttempt", &control_threads_, metrics_, response,
                [=, this] { return supervisor_->StopAttempt(*request); });
}

grpc::ServerUnaryReactor* WorkerServiceImpl::RunStage(grpc::CallbackServerContext* context,
                                                      const v1::RunStageRequest* request,
                                                      v1::RunStageResponse* response) {
  const absl::Time deadline = std::min(absl::FromChrono(context->deadline()), absl::Now() + kLongestStage);
  return Answer(context, "RunStage", &stage_threads_, metrics_, response,
                [=, this] { return supervisor_->RunStage(*request, deadline); });
}

grpc::ServerUnaryReactor* WorkerServiceImpl::ReadLog(grpc::CallbackServerContext* context,
                                                     const v1::ReadLogRequest* request, v1::ReadLogResponse* response) {
  return Answer(context, "ReadLog", &log_threads_, metrics_, response,
                [=, this] { return supervisor_->ReadLog(*request); });
}

}  // namespace sluice::worker
