// The border between absl::Status and grpc::Status. Codes map one to one; payloads of the absl::Status travel as status
// details in the standard form (google.rpc.Status), so that a Failure arrives with its evidence.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "sluice/v1/types.pb.h"

namespace sluice {

grpc::Status ToGrpcStatus(const absl::Status& status);

// Details that cannot be parsed are dropped; code and message stay.
absl::Status FromGrpcStatus(const grpc::Status& status);

// `status` that carries `failure` as its evidence. REQUIRES: !status.ok().
absl::Status WithFailure(absl::Status status, const v1::Failure& failure);

// The evidence that a status carries, if any.
std::optional<v1::Failure> FailureOf(const absl::Status& status);

}  // namespace sluice
