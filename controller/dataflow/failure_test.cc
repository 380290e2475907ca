#include "controller/dataflow/failure.h"

#include <gmock/gmock.h>

#include "common/grpc_status.h"
#include "controller/job_states.h"

namespace sluice::controller {
namespace {

v1::Failure Of(v1::FailureReason reason, int rank = 0) {
  v1::Failure failure;
  failure.set_reason(reason);
  failure.set_rank(rank);
  return failure;
}

TEST(FailureTest, CodesTellTheReason) {
  const std::pair<absl::Status, std::string> cases[] = {
      {absl::InvalidArgumentError("m"), "INVALID"},
      {absl::NotFoundError("m"), "INVALID"},
      {absl::ResourceExhaustedError("m"), "OUT_OF_MEMORY"},
      {absl::ResourceExhaustedError("write: No space left on device"), "STORAGE"},
      {absl::DataLossError("m"), "STORAGE"},
      {absl::AbortedError("m"), "COLLECTIVE"},
      {absl::UnavailableError("m"), "WORKER_LOST"},
      {absl::DeadlineExceededError("m"), "WORKER_LOST"},
      {absl::InternalError("m"), "ENGINE_ERROR"},
      {absl::UnknownError("m"), "ENGINE_ERROR"}};
  for (const auto& [status, reason] : cases) {
    EXPECT_EQ(ReasonName(FailureFromStatus(status, "train_batch on worker w").reason()), reason) << status;
  }
}

TEST(FailureTest, EvidenceWinsOverTheCode) {
  v1::Failure evidence = Of(v1::FAILURE_REASON_NONFINITE, 3);
  evidence.set_message("5 steps in a row");
  const v1::Failure failure = FailureFromStatus(WithFailure(absl::InternalError("m"), evidence), "where");
  EXPECT_EQ(failure.SerializeAsString(), evidence.SerializeAsString());
  // Evidence without a message or a reason gets the status's.
  const v1::Failure filled = FailureFromStatus(WithFailure(absl::AbortedError("m"), v1::Failure()), "where");
  EXPECT_EQ(filled.message(), "m");
  EXPECT_EQ(filled.reason(), v1::FAILURE_REASON_COLLECTIVE);
}

TEST(FailureTest, MessagesSayWhereUnlessTheUserIsToBlame) {
  EXPECT_EQ(FailureFromStatus(absl::UnavailableError("gone"), "train_batch on worker w").message(),
            "train_batch on worker w: gone");
  EXPECT_EQ(FailureFromStatus(absl::InvalidArgumentError("model.path: missing"), "initialize on worker w").message(),
            "model.path: missing");
  EXPECT_EQ(FailureFromStatus(absl::UnavailableError("gone"), "x").rank(), -1);
}

TEST(FailureTest, WhatAnotherAttemptMayMend) {
  const v1::FailureReason retryable[] = {v1::FAILURE_REASON_ENGINE_ERROR, v1::FAILURE_REASON_ENGINE_CRASHED,
                                         v1::FAILURE_REASON_WORKER_LOST, v1::FAILURE_REASON_COLLECTIVE,
                                         v1::FAILURE_REASON_CONTROLLER};
  for (int value = v1::FailureReason_MIN; value <= v1::FailureReason_MAX; ++value) {
    const auto reason = static_cast<v1::FailureReason>(value);
    EXPECT_EQ(IsRetryable(reason), std::count(std::begin(retryable), std::end(retryable), reason) == 1)
        << ReasonName(reason);
  }
}

TEST(FailureTest, TheRootCauseComesBeforeItsConsequences) {
  EXPECT_EQ(RootCause({Of(v1::FAILURE_REASON_COLLECTIVE, 0), Of(v1::FAILURE_REASON_ENGINE_CRASHED, 1)}).rank(), 1);
  EXPECT_EQ(RootCause({Of(v1::FAILURE_REASON_WORKER_LOST, 0), Of(v1::FAILURE_REASON_COLLECTIVE, 1)}).rank(), 0);
  EXPECT_EQ(RootCause({Of(v1::FAILURE_REASON_ENGINE_CRASHED, 0), Of(v1::FAILURE_REASON_INVALID, 1)}).rank(), 1);
  EXPECT_EQ(RootCause({Of(v1::FAILURE_REASON_ENGINE_CRASHED, 2), Of(v1::FAILURE_REASON_ENGINE_CRASHED, 3)}).rank(), 2);
}

}  // namespace
}  // namespace sluice::controller
