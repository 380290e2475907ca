// EngineService over gRPC: stages run one at a time on a thread of their own, in the order they come, and those that
// run beside others (DataflowOp::beside) on another; status is answered at any time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/thread_pool.h"
#include "engine/roles/role.h"
#include "engine/service/warning_box.h"
#include "sluice/v1/engine.grpc.pb.h"

namespace sluice::engine {

class EngineServiceImpl final : public v1::EngineService::CallbackService {
 public:
  // `make_role` is called at the first initialize. `rendezvous_port`: see EngineState.
  // Observes the process's log (SetLogObserver): one service at a time.
  EngineServiceImpl(std::function<std::unique_ptr<Role>(const v1::JobSpec&)> make_role, int rank, int rendezvous_port);
  ~EngineServiceImpl() override;

  grpc::ServerUnaryReactor* RunStage(grpc::CallbackServerContext* context, const v1::StageRequest* request,
                                     v1::StageResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest* request,
                                      v1::EngineState* response) override;
  grpc::ServerUnaryReactor* Shutdown(grpc::CallbackServerContext* context, const v1::ShutdownRequest* request,
                                     v1::ShutdownResponse* response) override;

  // Refuses further stages. From any thread.
  void RequestShutdown();
  // Returns once RequestShutdown was called and no stage runs.
  void WaitForShutdown();

 private:
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return shutting_down_ && waiting_stages_ == 0; }

  // The role, made where `request` initialises it; null before.
  std::shared_ptr<Role> RoleFor(const v1::StageRequest& request);

  const std::function<std::unique_ptr<Role>(const v1::JobSpec&)> make_role_;
  const int rank_;
  const int rendezvous_port_;
  std::atomic<int64_t> stage_sequence_ = 0;
  absl::Mutex mutex_;
  std::shared_ptr<Role> role_ ABSL_GUARDED_BY(mutex_);
  bool shutting_down_ ABSL_GUARDED_BY(mutex_) = false;
  int waiting_stages_ ABSL_GUARDED_BY(mutex_) = 0;  // running or waiting to
  WarningBox warnings_;
  ThreadPool beside_thread_;
  ThreadPool stage_thread_;
};

}  // namespace sluice::engine
