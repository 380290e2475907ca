// How the controller speaks to one worker daemon. GrpcWorkerClient in product, FakeWorkerClient in tests.
// Threads: all methods may be called from any thread, several at once. Each blocks until the answer, the timeout, or
// `stop`. Errors: the worker's own (worker.proto), Unavailable where it cannot be reached, DeadlineExceeded after the
// timeout, Cancelled when `stop` was requested. After the last three the call may have had its effect or not.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sluice/v1/worker.pb.h"

namespace sluice::controller {

struct CallOptions {
  absl::Duration timeout = absl::Seconds(10);
  std::stop_token stop;
};

class WorkerClient {
 public:
  virtual ~WorkerClient() = default;

  virtual absl::StatusOr<v1::StartAttemptResponse> StartAttempt(const v1::StartAttemptRequest& request,
                                                                const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::StopAttemptResponse> StopAttempt(const v1::StopAttemptRequest& request,
                                                              const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::RunStageResponse> RunStage(const v1::RunStageRequest& request,
                                                        const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::ReadLogResponse> ReadLog(const v1::ReadLogRequest& request,
                                                      const CallOptions& options) = 0;
};

// A client for the worker that listens at `address`.
using WorkerClientFactory = std::function<std::shared_ptr<WorkerClient>(const std::string& address)>;

// Clients over gRPC. gRPC shares the connection of clients with one address.
WorkerClientFactory GrpcWorkerClientFactory();

}  // namespace sluice::controller
