#include "common/grpc_channel.h"

#include <cstdlib>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace sluice {
namespace {

constexpr int kMessageBytes = 16 << 20;
// A Failure with 64 KiB of standard error, or a list of every error of a job file, travels as trailing metadata, where
// gRPC allows 8 KiB unless told otherwise.
constexpr int kMetadataBytes = 512 << 10;
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
// Smaller than the keepalive time of clients, or the server closes their connections for too many pings.
constexpr int kSmallestPingIntervalMs = 20'000;

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytes);
  arguments.SetMaxSendMessageSize(kMessageBytes);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  // Loopback and cluster addresses are never reached through an HTTP proxy of the environment.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void ApplyServerLimits(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMessageBytes);
  builder->SetMaxSendMessageSize(kMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kSmallestPingIntervalMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

void QuietGrpcLogs() { setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0); }

}  // namespace sluice
