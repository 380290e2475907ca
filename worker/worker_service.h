// WorkerService over gRPC: each call runs on a thread of ours, never on gRPC's.
#pragma once

#include "common/metrics.h"
#include "common/thread_pool.h"
#include "sluice/v1/worker.grpc.pb.h"
#include "worker/supervisor.h"

namespace sluice::worker {

class WorkerServiceImpl final : public v1::WorkerService::CallbackService {
 public:
  // REQUIRES: both outlive the service. The destructor waits for the calls that run.
  WorkerServiceImpl(Supervisor* supervisor, Metrics* metrics, int rank_slots);

  grpc::ServerUnaryReactor* StartAttempt(grpc::CallbackServerContext* context, const v1::StartAttemptRequest* request,
                                         v1::StartAttemptResponse* response) override;
  grpc::ServerUnaryReactor* StopAttempt(grpc::CallbackServerContext* context, const v1::StopAttemptRequest* request,
                                        v1::StopAttemptResponse* response) override;
  grpc::ServerUnaryReactor* RunStage(grpc::CallbackServerContext* context, const v1::RunStageRequest* request,
                                     v1::RunStageResponse* response) override;
  grpc::ServerUnaryReactor* ReadLog(grpc::CallbackServerContext* context, const v1::ReadLogRequest* request,
                                    v1::ReadLogResponse* response) override;

 private:
  Supervisor* const supervisor_;
  Metrics* const metrics_;
  // Stages block for as long as they run; stops and logs must not wait behind them.
  ThreadPool stage_threads_;
  ThreadPool control_threads_;
  ThreadPool log_threads_;
};

}  // namespace sluice::worker
