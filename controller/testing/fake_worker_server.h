// A FakeWorker behind a real gRPC server, registered with a controller as a daemon would be.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/build_info.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "controller/testing/fake_worker.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "sluice/v1/controller.grpc.pb.h"
#include "sluice/v1/worker.grpc.pb.h"

namespace sluice::controller::testing {

class FakeWorkerServer final : public v1::WorkerService::Service {
 public:
  FakeWorkerServer() {
    grpc::ServerBuilder builder;
    ApplyServerLimits(&builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~FakeWorkerServer() override {
    worker.Release();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  // Registers with the controller at `controller_address`, and sends one heartbeat.
  grpc::Status Register(const std::string& controller_address, int slots) {
    const auto stub = v1::WorkerRegistryService::NewStub(MakeChannel(controller_address));
    v1::RegisterWorkerRequest request;
    request.set_worker_id("w");
    request.set_incarnation("i");
    request.set_address(address_);
    request.mutable_resources()->set_rank_slots(slots);
    request.mutable_resources()->set_device("cpu");
    request.set_version(BuildVersion());
    v1::RegisterWorkerResponse response;
    grpc::ClientContext register_context;
    if (const grpc::Status status = stub->RegisterWorker(&register_context, request, &response); !status.ok())
      return status;
    v1::HeartbeatRequest heartbeat;
    heartbeat.set_worker_id("w");
    heartbeat.set_incarnation("i");
    v1::HeartbeatResponse answer;
    grpc::ClientContext heartbeat_context;
    return stub->Heartbeat(&heartbeat_context, heartbeat, &answer);
  }

  grpc::Status StartAttempt(grpc::ServerContext*, const v1::StartAttemptRequest* request,
                            v1::StartAttemptResponse* response) override {
    return Forward(worker.StartAttempt(*request, {}), response);
  }
  grpc::Status StopAttempt(grpc::ServerContext*, const v1::StopAttemptRequest* request,
                           v1::StopAttemptResponse* response) override {
    return Forward(worker.StopAttempt(*request, {}), response);
  }
  grpc::Status RunStage(grpc::ServerContext*, const v1::RunStageRequest* request,
                        v1::RunStageResponse* response) override {
    return Forward(worker.RunStage(*request, {}), response);
  }
  grpc::Status ReadLog(grpc::ServerContext*, const v1::ReadLogRequest* request,
                       v1::ReadLogResponse* response) override {
    return Forward(worker.ReadLog(*request, {}), response);
  }

  FakeWorker worker;

 private:
  template <typename Response>
  static grpc::Status Forward(absl::StatusOr<Response> result, Response* response) {
    if (!result.ok()) return ToGrpcStatus(result.status());
    *response = *std::move(result);
    return grpc::Status::OK;
  }

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace sluice::controller::testing
