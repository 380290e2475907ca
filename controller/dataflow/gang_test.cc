#include "controller/dataflow/gang.h"

#include "common/build_info.h"
#include "common/testing/status_matchers.h"

namespace sluice::controller {
namespace {

// A worker that does not answer, and takes its time to.
class SilentWorker final : public WorkerClient {
 public:
  SilentWorker(FakeClock* clock, absl::Duration takes) : clock_(clock), takes_(takes) {}

  absl::StatusOr<v1::StartAttemptResponse> StartAttempt(const v1::StartAttemptRequest&, const CallOptions&) override {
    return Silence();
  }
  absl::StatusOr<v1::StopAttemptResponse> StopAttempt(const v1::StopAttemptRequest&, const CallOptions&) override {
    return Silence();
  }
  absl::StatusOr<v1::RunStageResponse> RunStage(const v1::RunStageRequest&, const CallOptions&) override {
    return Silence();
  }
  absl::StatusOr<v1::ReadLogResponse> ReadLog(const v1::ReadLogRequest&, const CallOptions&) override {
    return Silence();
  }

 private:
  absl::Status Silence() {
    clock_->Advance(takes_);
    return absl::UnavailableError("cannot connect");
  }

  FakeClock* const clock_;
  const absl::Duration takes_;
};

// The worker becomes lost while it is asked to stop: the next look comes at once, not a retry's pause later.
TEST(GangTest, AWorkerThatIsLostWhileItIsAskedToStopIsNotWaitedFor) {
  FakeClock clock;
  Metrics metrics{MetricRole::kController};
  WorkerRegistry registry(RegistryOptions(), &clock, &metrics);
  v1::RegisterWorkerRequest request;
  request.set_worker_id("w");
  request.set_incarnation("i");
  request.set_address("w");
  request.mutable_resources()->set_rank_slots(1);
  request.set_version(BuildVersion());
  ASSERT_OK(registry.Register(request));
  AttemptRecord record;
  record.job_id = "job-1";
  record.placements = {{0, "w", "i", "w"}};
  Gang gang(
      record, AttemptOptions(),
      [&](const std::string&) { return std::make_shared<SilentWorker>(&clock, RegistryOptions().lost_after); },
      &registry, &clock);
  std::vector<std::string> waiting;
  EXPECT_OK(gang.Stop(/*epoch=*/2, absl::ZeroDuration(), std::stop_token(),
                      [&](const std::string& reason) { waiting.push_back(reason); }));
  EXPECT_THAT(waiting, ::testing::ElementsAre("waits for worker w to stop its engines: cannot connect"));
}

}  // namespace
}  // namespace sluice::controller
