#include "common/grpc_status.h"

#include <string>

#include "absl/strings/cord.h"

namespace sluice {
namespace {

constexpr char kFailureUrl[] = "type.googleapis.com/sluice.v1.Failure";

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  v1::StatusDetails details;
  details.set_code(static_cast<int32_t>(status.code()));
  details.set_message(std::string(status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    google::protobuf::Any* any = details.add_details();
    any->set_type_url(std::string(url));
    any->set_value(std::string(payload));
  });
  const std::string bytes = details.details().empty() ? "" : details.SerializeAsString();
  // absl's canonical codes are gRPC's, number by number.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(), bytes);
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  v1::StatusDetails details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& any : details.details())
      result.SetPayload(any.type_url(), absl::Cord(any.value()));
  }
  return result;
}

absl::Status WithFailure(absl::Status status, const v1::Failure& failure) {
  status.SetPayload(kFailureUrl, absl::Cord(failure.SerializeAsString()));
  return status;
}

std::optional<v1::Failure> FailureOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kFailureUrl);
  v1::Failure failure;
  if (!payload.has_value() || !failure.ParseFromString(std::string(*payload))) return std::nullopt;
  return failure;
}

}  // namespace sluice
