#include "worker/supervisor.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace sluice::worker {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

std::string FakeEnginePath() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fake_engine").string();
}

class SupervisorTest : public ::testing::Test {
 protected:
  void Start(int rank_slots, SupervisorOptions options = {}) {
    options.engine_binary = FakeEnginePath();
    options.log_dir = dir_.Join("logs");
    options.rank_slots = rank_slots;
    options.start_timeout = absl::Seconds(20);
    auto supervisor = Supervisor::Create(options, &metrics_);
    ASSERT_OK(supervisor);
    supervisor_ = *std::move(supervisor);
  }

  std::string LogOf(int rank) {
    return ReadFileTail(dir_.Join(absl::StrCat("logs/job-1/1/rank_", rank, ".log")), 4096);
  }

  v1::StartAttemptRequest StartRequest(const std::string& name, int ranks, int64_t epoch = 1, int32_t attempt = 1) {
    v1::StartAttemptRequest request;
    request.set_job_id("job-1");
    request.set_attempt(attempt);
    request.set_epoch(epoch);
    request.mutable_spec()->set_name(name);
    for (int rank = 0; rank < ranks; ++rank) request.add_ranks(rank);
    request.set_world_size(ranks);
    return request;
  }

  absl::StatusOr<v1::RunStageResponse> Run(const v1::StageRequest& stage, int64_t epoch = 1, int32_t attempt = 1) {
    v1::RunStageRequest request;
    request.set_job_id("job-1");
    request.set_attempt(attempt);
    request.set_epoch(epoch);
    *request.mutable_stage() = stage;
    return supervisor_->RunStage(request, absl::Now() + absl::Minutes(1));
  }

  absl::StatusOr<v1::RunStageResponse> Initialize(const std::string& name, int ranks) {
    v1::StageRequest stage;
    stage.set_sequence(1);
    stage.mutable_initialize()->mutable_spec()->set_name(name);
    stage.mutable_initialize()->set_job_id("job-1");
    stage.mutable_initialize()->set_attempt(1);
    stage.mutable_initialize()->set_world_size(ranks);
    return Run(stage);
  }

  absl::StatusOr<v1::RunStageResponse> Train(int64_t step) {
    v1::StageRequest stage;
    stage.set_sequence(step + 1);
    stage.mutable_train_batch()->set_step(step);
    return Run(stage);
  }

  absl::StatusOr<v1::StopAttemptResponse> Stop(int64_t epoch = 1, double grace_s = 10) {
    v1::StopAttemptRequest request;
    request.set_job_id("job-1");
    request.set_attempt(1);
    request.set_epoch(epoch);
    request.set_grace_s(grace_s);
    return supervisor_->StopAttempt(request);
  }

  testing::TempDir dir_;
  Metrics metrics_{MetricRole::kWorker};
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(SupervisorTest, StartsRunsAndStops) {
  Start(2);
  ASSERT_OK_AND_ASSIGN(const auto started, supervisor_->StartAttempt(StartRequest("fine", 2)));
  ASSERT_EQ(started.engines_size(), 2);
  EXPECT_THAT(started.engines(0).rendezvous_address(), HasSubstr("file:"));
  EXPECT_EQ(started.engines(1).rendezvous_address(), "");
  ASSERT_OK(Initialize("fine", 2));
  ASSERT_OK_AND_ASSIGN(const auto trained, Train(1));
  ASSERT_EQ(trained.ranks_size(), 2);
  EXPECT_EQ(trained.ranks(1).rank(), 1);
  EXPECT_EQ(trained.ranks(0).response().train_batch().loss(), 1.0);
  EXPECT_EQ(metrics_.ValueForTest(MetricId::kTrainStep, {"job-1"}), 1);
  EXPECT_EQ(metrics_.ValueForTest(MetricId::kTrainTokens, {"job-1", "padding"}), 10);

  const auto statuses = supervisor_->Statuses();
  ASSERT_EQ(statuses.size(), 1u);
  EXPECT_EQ(statuses[0].engines(0).collective_sequence(), 17);
  EXPECT_TRUE(statuses[0].engines(1).running());

  ASSERT_OK_AND_ASSIGN(const auto stopped, Stop());
  EXPECT_EQ(stopped.killed(), 0);
  for (const auto& engine : started.engines()) EXPECT_NE(kill(engine.pid(), 0), 0) << "SUP-4: process left";
  EXPECT_TRUE(supervisor_->Statuses().empty());
  EXPECT_EQ(metrics_.ValueForTest(MetricId::kTrainStep, {"job-1"}), 0);
  EXPECT_OK(Stop()) << "stopping what is not there is fine";
}

TEST_F(SupervisorTest, RepeatedStartIsTheSameAttempt) {
  Start(1);
  ASSERT_OK_AND_ASSIGN(const auto first, supervisor_->StartAttempt(StartRequest("fine", 1)));
  ASSERT_OK_AND_ASSIGN(const auto second, supervisor_->StartAttempt(StartRequest("fine", 1)));
  EXPECT_EQ(first.engines(0).pid(), second.engines(0).pid());
}

TEST_F(SupervisorTest, SlotsAreNeverSharedAndComeBack) {  // SUP-1
  Start(2);
  ASSERT_OK(supervisor_->StartAttempt(StartRequest("fine", 2)));
  auto other = StartRequest("fine", 1);
  other.set_job_id("job-2");
  EXPECT_THAT(supervisor_->StartAttempt(other),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("needs 1 rank slots, 0 of 2 are free")));
  ASSERT_OK(Stop());
  EXPECT_OK(supervisor_->StartAttempt(other));
}

TEST_F(SupervisorTest, OlderEpochsAreRefused) {  // SUP-2
  Start(1);
  ASSERT_OK(supervisor_->StartAttempt(StartRequest("fine", 1, /*epoch=*/5)));
  EXPECT_THAT(supervisor_->StartAttempt(StartRequest("fine", 1, /*epoch=*/4)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("epoch 4 is older than 5")));
  EXPECT_THAT(Stop(/*epoch=*/4), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("older")));
  v1::StageRequest stage;
  stage.mutable_train_batch()->set_step(1);
  EXPECT_THAT(Run(stage, /*epoch=*/4), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("older")));
  EXPECT_EQ(supervisor_->Statuses().size(), 1u);
}

TEST_F(SupervisorTest, ANewAttemptReplacesTheOld) {  // SUP-3
  Start(1);
  ASSERT_OK_AND_ASSIGN(const auto first, supervisor_->StartAttempt(StartRequest("fine", 1, 1, 1)));
  ASSERT_OK_AND_ASSIGN(const auto second, supervisor_->StartAttempt(StartRequest("fine", 1, 2, 2)));
  EXPECT_NE(first.engines(0).pid(), second.engines(0).pid());
  EXPECT_NE(kill(first.engines(0).pid(), 0), 0);
  ASSERT_EQ(supervisor_->Statuses().size(), 1u);
  EXPECT_EQ(supervisor_->Statuses()[0].attempt(), 2);
}

TEST_F(SupervisorTest, ACrashIsNamedAndEndsItsPeers) {
  Start(2);
  ASSERT_OK_AND_ASSIGN(const auto started, supervisor_->StartAttempt(StartRequest("crash_2_1", 2)));
  ASSERT_OK(Initialize("crash_2_1", 2));
  ASSERT_OK(Train(1));
  const auto crashed = Train(2);
  EXPECT_THAT(crashed, StatusIs(absl::StatusCode::kAborted, HasSubstr("engine of rank 1 ended with signal 11")));
  const auto failure = FailureOf(crashed.status());
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->reason(), v1::FAILURE_REASON_ENGINE_CRASHED);
  EXPECT_EQ(failure->rank(), 1);
  EXPECT_EQ(failure->signal(), SIGSEGV);
  EXPECT_EQ(metrics_.ValueForTest(MetricId::kTrainSteps, {"job-1", "failed"}), 1);
  const auto statuses = supervisor_->Statuses();
  ASSERT_EQ(statuses.size(), 1u);
  EXPECT_FALSE(statuses[0].engines(1).running());
  EXPECT_EQ(statuses[0].engines(1).failure().signal(), SIGSEGV);
}

TEST_F(SupervisorTest, ExitCodeAndLastWordsAreKept) {
  Start(1);
  ASSERT_OK(supervisor_->StartAttempt(StartRequest("exit_1", 1)));
  ASSERT_OK(Initialize("exit_1", 1));
  const auto exited = Train(1);
  const auto failure = FailureOf(exited.status());
  ASSERT_TRUE(failure.has_value()) << exited.status();
  EXPECT_EQ(failure->exit_code(), 7);
  EXPECT_THAT(failure->message(), HasSubstr("its last line was: the last thing it said"));
  EXPECT_THAT(failure->stderr_tail(), HasSubstr("initialized job-1"));
}

TEST_F(SupervisorTest, AnAnsweredErrorKeepsItsCode) {
  Start(1);
  ASSERT_OK(supervisor_->StartAttempt(StartRequest("error_1", 1)));
  ASSERT_OK(Initialize("error_1", 1));
  EXPECT_THAT(Train(1), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bad row")));
}

TEST_F(SupervisorTest, StopEndsAHangingStage) {
  Start(1);
  ASSERT_OK(supervisor_->StartAttempt(StartRequest("hang_1", 1)));
  ASSERT_OK(Initialize("hang_1", 1));
  std::thread stage([&] { EXPECT_FALSE(Train(1).ok()); });
  ASSERT_OK(Stop(/*epoch=*/1, /*grace_s=*/0));
  stage.join();
}

TEST_F(SupervisorTest, EachEngineSeesTheGpuOfItsSlot) {
  Start(3, {.gpu_ids = {"3", "GPU-8a1f"}});
  ASSERT_OK(supervisor_->StartAttempt(StartRequest("fine", 3)));
  ASSERT_OK(Initialize("fine", 3));
  EXPECT_THAT(LogOf(0), HasSubstr("gpu '3'"));
  EXPECT_THAT(LogOf(1), HasSubstr("gpu 'GPU-8a1f'"));
  EXPECT_THAT(LogOf(2), HasSubstr("gpu ''"));
}

TEST_F(SupervisorTest, AnEngineThatStandsStillIsKilledAndItsPeerStopped) {
  Start(2, {.engine_silence = absl::Seconds(2)});
  ASSERT_OK(supervisor_->StartAttempt(StartRequest("stop_1_1", 2)));
  ASSERT_OK(Initialize("stop_1_1", 2));
  const auto stage = Train(1);
  EXPECT_THAT(stage, StatusIs(absl::StatusCode::kAborted,
                              HasSubstr("engine of rank 1 answered nothing for 2s (its process is stopped")));
  const std::optional<v1::Failure> failure = FailureOf(stage.status());
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->reason(), v1::FAILURE_REASON_ENGINE_CRASHED);
  EXPECT_EQ(failure->rank(), 1);
}

// It may do so for good reasons, and answers questions all the while.
TEST_F(SupervisorTest, AnEngineThatTakesLongIsLeftAlone) {
  Start(1, {.engine_silence = absl::Seconds(1)});
  ASSERT_OK(supervisor_->StartAttempt(StartRequest("hang_1", 1)));
  ASSERT_OK(Initialize("hang_1", 1));
  v1::RunStageRequest request;
  request.set_job_id("job-1");
  request.set_attempt(1);
  request.set_epoch(1);
  request.mutable_stage()->mutable_train_batch()->set_step(1);
  EXPECT_THAT(supervisor_->RunStage(request, absl::Now() + absl::Seconds(3)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::_));
}

// The caller may let the attempt go the moment it has its answer; nothing of a call may live on behind it.
TEST_F(SupervisorTest, ManyAttemptsThatDieInAStage) {
  Start(1);
  for (int attempt = 1; attempt <= 8; ++attempt) {
    auto request = StartRequest("kill_1", 1, attempt, attempt);
    request.set_job_id(absl::StrCat("job-", attempt));
    ASSERT_OK(supervisor_->StartAttempt(request));
    v1::RunStageRequest stage;
    stage.set_job_id(request.job_id());
    stage.set_attempt(attempt);
    stage.set_epoch(attempt);
    auto* initialize = stage.mutable_stage()->mutable_initialize();
    initialize->mutable_spec()->set_name("kill_1");
    initialize->set_attempt(1);
    ASSERT_OK(supervisor_->RunStage(stage, absl::Now() + absl::Minutes(1)));
    stage.mutable_stage()->mutable_train_batch()->set_step(1);
    EXPECT_THAT(supervisor_->RunStage(stage, absl::Now() + absl::Minutes(1)),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("signal 9")));
    v1::StopAttemptRequest stop;
    stop.set_job_id(request.job_id());
    stop.set_attempt(attempt);
    stop.set_epoch(attempt);
    EXPECT_OK(supervisor_->StopAttempt(stop));
  }
}

TEST_F(SupervisorTest, KillsWhatDoesNotStop) {
  Start(1);
  ASSERT_OK(supervisor_->StartAttempt(StartRequest("stubborn", 1)));
  ASSERT_OK(Initialize("stubborn", 1));
  ASSERT_OK_AND_ASSIGN(const auto stopped, Stop(/*epoch=*/1, /*grace_s=*/0.2));
  EXPECT_EQ(stopped.killed(), 1);
}

TEST_F(SupervisorTest, AnEngineThatCannotStartIsExplained) {
  Start(1);
  setenv("SLUICE_FAKE_ENGINE_EXITS", "1", 1);
  const auto started = supervisor_->StartAttempt(StartRequest("fine", 1));
  unsetenv("SLUICE_FAKE_ENGINE_EXITS");
  EXPECT_THAT(started,
              StatusIs(absl::StatusCode::kAborted, HasSubstr("exit code 3; its last line was: no such device")));
  EXPECT_OK(supervisor_->StartAttempt(StartRequest("fine", 1))) << "the slot came back";
}

TEST_F(SupervisorTest, LogsAreReadByOffset) {
  Start(1);
  ASSERT_OK(supervisor_->StartAttempt(StartRequest("fine", 1)));
  ASSERT_OK(Initialize("fine", 1));
  v1::ReadLogRequest request;
  request.set_job_id("job-1");
  request.set_attempt(1);
  ASSERT_OK_AND_ASSIGN(const auto whole, supervisor_->ReadLog(request));
  EXPECT_THAT(whole.data(), HasSubstr("initialized job-1 on rank 0 of 1"));
  EXPECT_FALSE(whole.end());
  request.set_offset(12);
  request.set_max_bytes(5);
  ASSERT_OK_AND_ASSIGN(const auto part, supervisor_->ReadLog(request));
  EXPECT_EQ(part.data(), whole.data().substr(12, 5));
  ASSERT_OK(Stop());
  request.set_offset(whole.data().size());
  request.set_max_bytes(0);
  ASSERT_OK_AND_ASSIGN(const auto end, supervisor_->ReadLog(request));
  EXPECT_EQ(end.data(), "");
  EXPECT_TRUE(end.end());
  request.set_rank(9);
  EXPECT_THAT(supervisor_->ReadLog(request), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no log of rank 9")));
  request.set_job_id("../../etc");
  EXPECT_THAT(supervisor_->ReadLog(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("job_id")));
}

TEST_F(SupervisorTest, ShutdownRefusesAndStops) {
  Start(1);
  ASSERT_OK_AND_ASSIGN(const auto started, supervisor_->StartAttempt(StartRequest("fine", 1)));
  supervisor_->Shutdown(absl::Seconds(10));
  EXPECT_NE(kill(started.engines(0).pid(), 0), 0);
  EXPECT_THAT(supervisor_->StartAttempt(StartRequest("fine", 1)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
}

}  // namespace
}  // namespace sluice::worker
