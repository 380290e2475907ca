// Counts and times a unary call, runs it on a pool and answers it.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "common/grpc_status.h"
#include "common/metrics.h"
#include "common/thread_pool.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

namespace sluice::controller {

// Runs `work` on `pool`, then finishes the call with its status. Request and response live until then.
inline grpc::ServerUnaryReactor* RunUnary(grpc::CallbackServerContext* context, const std::string& method,
                                          ThreadPool* pool, Metrics* metrics, std::function<absl::Status()> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Time arrival = absl::Now();
  pool->Submit([context, reactor, method, metrics, arrival, work = std::move(work)] {
    // A client that has gone needs no answer. It will repeat a mutation, which has a request id, or has given it up.
    const absl::Status status = context->IsCancelled() ? absl::CancelledError("the client is gone") : work();
    metrics->Increment(MetricId::kGrpcServerRequests, {method, absl::StatusCodeToString(status.code())});
    metrics->Observe(MetricId::kGrpcServerRequestDuration, {method}, absl::ToDoubleSeconds(absl::Now() - arrival));
    reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

}  // namespace sluice::controller
