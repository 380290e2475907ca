#include "controller/worker_registry.h"

#include "common/build_info.h"
#include "common/testing/status_matchers.h"

namespace sluice::controller {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

v1::RegisterWorkerRequest Registration(const std::string& incarnation = "i1") {
  v1::RegisterWorkerRequest request;
  request.set_worker_id("w");
  request.set_incarnation(incarnation);
  request.set_address("127.0.0.1:1");
  request.mutable_resources()->set_rank_slots(2);
  request.set_version(BuildVersion());
  return request;
}

class WorkerRegistryTest : public ::testing::Test {
 protected:
  v1::WorkerState State() { return registry_.List().at(0).state(); }

  FakeClock clock_;
  Metrics metrics_{MetricRole::kController};
  RegistryOptions options_;
  WorkerRegistry registry_{options_, &clock_, &metrics_};
};

TEST_F(WorkerRegistryTest, ReadyThenSuspectThenLost) {
  ASSERT_OK_AND_ASSIGN(const auto response, registry_.Register(Registration()));
  EXPECT_EQ(response.heartbeat_interval_s(), 2);
  EXPECT_EQ(response.lease_s(), 20);
  EXPECT_EQ(State(), v1::WORKER_STATE_READY);
  clock_.Advance(options_.suspect_after);
  EXPECT_EQ(State(), v1::WORKER_STATE_SUSPECT);
  EXPECT_TRUE(registry_.TakeLosses().empty());
  ASSERT_OK(registry_.Heartbeat("w", "i1"));
  EXPECT_EQ(State(), v1::WORKER_STATE_READY);
  clock_.Advance(options_.lost_after);
  EXPECT_EQ(State(), v1::WORKER_STATE_LOST);
  const auto losses = registry_.TakeLosses();
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].incarnation, "i1");
  EXPECT_THAT(losses[0].reason, HasSubstr("not heard from for 25s"));
  EXPECT_TRUE(registry_.TakeLosses().empty()) << "a loss is told once";
  EXPECT_EQ(metrics_.ValueForTest(MetricId::kWorkers, {"lost"}), 1);
}

TEST_F(WorkerRegistryTest, ALostWorkerMustRegisterAgain) {
  ASSERT_OK(registry_.Register(Registration()));
  clock_.Advance(options_.lost_after);
  EXPECT_THAT(registry_.Heartbeat("w", "i1"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("register again")));
  ASSERT_OK(registry_.Register(Registration()));
  EXPECT_OK(registry_.Heartbeat("w", "i1"));
  EXPECT_FALSE(registry_.IsGone("w", "i1"));
}

TEST_F(WorkerRegistryTest, ANewIncarnationReplacesTheOld) {
  ASSERT_OK(registry_.Register(Registration("i1")));
  ASSERT_OK(registry_.Register(Registration("i2")));
  EXPECT_TRUE(registry_.IsGone("w", "i1"));
  EXPECT_FALSE(registry_.IsGone("w", "i2"));
  EXPECT_EQ(registry_.TakeLosses().at(0).incarnation, "i1");
  EXPECT_THAT(registry_.Heartbeat("w", "i1"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("w")));
}

TEST_F(WorkerRegistryTest, AWorkerNeverHeardFromIsGoneAfterTheLease) {
  EXPECT_FALSE(registry_.IsGone("w", "i1"));
  clock_.Advance(options_.lost_after);
  EXPECT_TRUE(registry_.IsGone("w", "i1"));
}

TEST_F(WorkerRegistryTest, BadRegistrationsAreRefused) {
  v1::RegisterWorkerRequest request = Registration();
  request.set_version("0.0.0");
  EXPECT_THAT(registry_.Register(request), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("version 0.0.0")));
  request = Registration();
  request.mutable_resources()->set_rank_slots(0);
  EXPECT_THAT(registry_.Register(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank_slots")));
  request = Registration();
  request.clear_incarnation();
  EXPECT_THAT(registry_.Register(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("incarnation")));
  EXPECT_TRUE(registry_.List().empty());
}

TEST_F(WorkerRegistryTest, LongLostWorkersAreForgotten) {
  ASSERT_OK(registry_.Register(Registration()));
  clock_.Advance(options_.forget_after);
  EXPECT_EQ(registry_.TakeLosses().size(), 1u);
  EXPECT_TRUE(registry_.List().empty());
}

}  // namespace
}  // namespace sluice::controller
