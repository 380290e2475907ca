// How every program of this project dials and serves: message and metadata sizes, keepalive. One place, because both
// ends must agree.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/server_builder.h"

namespace sluice {

// A channel to `address` (host:port or unix:path). Connects at the first call.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// The same limits for a server. Also refuses to share a port with another process.
void ApplyServerLimits(grpc::ServerBuilder* builder);

// Keeps gRPC's own log lines off standard error, unless GRPC_VERBOSITY is set: what goes wrong is in the status of
// calls and in our own messages. Call in main, before anything of gRPC is used.
void QuietGrpcLogs();

}  // namespace sluice
