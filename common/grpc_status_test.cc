#include "common/grpc_status.h"

#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::sluice::testing::IsOk;
using ::sluice::testing::StatusIs;

TEST(GrpcStatusTest, EveryCodeMapsToItself) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "what happened");
    const grpc::Status remote = ToGrpcStatus(status);
    EXPECT_EQ(remote.error_code(), code);
    EXPECT_EQ(remote.error_details(), "");
    EXPECT_EQ(FromGrpcStatus(remote), status);
  }
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_THAT(FromGrpcStatus(grpc::Status::OK), IsOk());
}

TEST(GrpcStatusTest, FailureTravels) {
  v1::Failure failure;
  failure.set_reason(v1::FAILURE_REASON_ENGINE_CRASHED);
  failure.set_rank(3);
  failure.set_signal(11);
  failure.set_stderr_tail(std::string(64 << 10, 'x'));
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(WithFailure(absl::AbortedError("rank 3 died"), failure)));
  EXPECT_THAT(back, StatusIs(absl::StatusCode::kAborted, "rank 3 died"));
  ASSERT_TRUE(FailureOf(back).has_value());
  EXPECT_EQ(FailureOf(back)->SerializeAsString(), failure.SerializeAsString());
}

TEST(GrpcStatusTest, DetailsThatCannotBeReadAreDropped) {
  const absl::Status status = FromGrpcStatus(grpc::Status(grpc::StatusCode::ABORTED, "m", "\xff\xff\xff"));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "m"));
  EXPECT_FALSE(FailureOf(status).has_value());
}

}  // namespace
}  // namespace sluice
