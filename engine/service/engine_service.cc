#include "engine/service/engine_service.h"

#include <grpcpp/support/server_callback.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/logging.h"
#include "engine/roles/stage_dispatch.h"

namespace sluice::engine {

EngineServiceImpl::EngineServiceImpl(std::function<std::unique_ptr<Role>(const v1::JobSpec&)> make_role, int rank,
                                     int rendezvous_port)
    : make_role_(std::move(make_role)),
      rank_(rank),
      rendezvous_port_(rendezvous_port),
      beside_thread_(1),
      stage_thread_(1) {
  SetLogObserver([this](LogLevel level, std::string_view message) {
    if (level == LogLevel::kWarning) warnings_.Add(message);
  });
}

EngineServiceImpl::~EngineServiceImpl() { SetLogObserver({}); }

std::shared_ptr<Role> EngineServiceImpl::RoleFor(const v1::StageRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (role_ == nullptr && request.has_initialize()) role_ = make_role_(request.initialize().spec());
  return role_;
}

grpc::ServerUnaryReactor* EngineServiceImpl::RunStage(grpc::CallbackServerContext* context,
                                                      const v1::StageRequest* request, v1::StageResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  {
    absl::MutexLock lock(&mutex_);
    if (shutting_down_) {
      reactor->Finish({grpc::StatusCode::UNAVAILABLE, absl::StrCat("the engine of rank ", rank_, " is shutting down")});
      return reactor;
    }
    ++waiting_stages_;
  }
  ThreadPool& thread = request->dataflow().beside() ? beside_thread_ : stage_thread_;
  thread.Submit([=, this] {
    stage_sequence_ = request->sequence();
    absl::StatusOr<v1::StageResponse> result = DispatchStage(RoleFor(*request).get(), *request, rank_);
    if (result.ok()) {
      *response = *std::move(result);
      for (std::string& warning : warnings_.Take()) response->add_warnings(std::move(warning));
    } else {
      LoggerFor("engine").Error(std::string(result.status().message()));
    }
    reactor->Finish(ToGrpcStatus(result.status()));
    absl::MutexLock lock(&mutex_);
    --waiting_stages_;
  });
  return reactor;
}

grpc::ServerUnaryReactor* EngineServiceImpl::GetStatus(grpc::CallbackServerContext* context,
                                                       const v1::GetStatusRequest*, v1::EngineState* response) {
  std::shared_ptr<Role> role;
  {
    absl::MutexLock lock(&mutex_);
    role = role_;
  }
  const CollectiveState collective = role == nullptr ? CollectiveState() : role->collective_state();
  response->set_rank(rank_);
  response->set_stage_sequence(stage_sequence_);
  {
    absl::MutexLock lock(&mutex_);
    response->set_busy(waiting_stages_ > 0);
  }
  response->set_collective_sequence(collective.sequence);
  response->set_collective_name(collective.name);
  response->set_rendezvous_port(rendezvous_port_);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* EngineServiceImpl::Shutdown(grpc::CallbackServerContext* context, const v1::ShutdownRequest*,
                                                      v1::ShutdownResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  RequestShutdown();
  return reactor;
}

void EngineServiceImpl::RequestShutdown() {
  absl::MutexLock lock(&mutex_);
  shutting_down_ = true;
}

void EngineServiceImpl::WaitForShutdown() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &EngineServiceImpl::Idle));
}

}  // namespace sluice::engine
