#include "controller/job_manager.h"

#include <gmock/gmock.h>

#include "common/grpc_status.h"
#include "controller/testing/test_cluster.h"

namespace sluice::controller {
namespace {

using ::sluice::controller::testing::FakeWorker;
using ::sluice::controller::testing::TestCluster;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Status Crash(int rank) {
  v1::Failure failure;
  failure.set_reason(v1::FAILURE_REASON_ENGINE_CRASHED);
  failure.set_rank(rank);
  failure.set_signal(11);
  failure.set_message("rank died by signal 11");
  return WithFailure(absl::AbortedError("died"), failure);
}

TEST(JobManagerTest, AJobRunsToItsEnd) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 1);
  v1::JobSpec spec = TestCluster::Spec();
  spec.mutable_data()->add_val_files("val.jsonl");
  spec.mutable_trainer()->set_val_before_train(true);
  spec.mutable_trainer()->set_export_hf_model(true);
  spec.mutable_trainer()->set_default_local_dir("runs/x");
  worker.total_steps = 3;
  const std::string id = cluster.Submit(spec);
  const v1::Job job = cluster.Await(id, v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(worker.stages(), ElementsAre("initialize 0", "infer_batch 0", "train_batch 1", "train_batch 2",
                                           "train_batch 3", "infer_batch 3", "save_checkpoint 3", "export_weights 0"));
  EXPECT_THAT(cluster.StatesOf(id),
              ElementsAre(v1::JOB_STATE_QUEUED, v1::JOB_STATE_ADMITTED, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING,
                          v1::JOB_STATE_CHECKPOINTING, v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED));
  EXPECT_EQ(job.output_path(), "runs/x/huggingface");
  EXPECT_EQ(job.progress().step(), 3);
  EXPECT_EQ(job.progress().total_steps(), 3);
  EXPECT_EQ(job.progress().checkpoint_step(), 3);
  EXPECT_DOUBLE_EQ(job.progress().first_val_loss(), 5.0);
  EXPECT_DOUBLE_EQ(job.progress().last_val_loss(), 4.7);
  EXPECT_DOUBLE_EQ(job.progress().last_step().loss(), 10.0 / 3);
  EXPECT_FALSE(job.has_failure());
  EXPECT_EQ(worker.engines_running(), 0);
  int steps = 0;
  for (const v1::JobEvent& event : cluster.EventsOf(id)) steps += event.has_step();
  EXPECT_EQ(steps, 3) << "every step is an event";
  cluster.manager->Shutdown(
      absl::InfiniteFuture());  // the metrics follow the state; the runner has set them when it has ended
  EXPECT_EQ(cluster.metrics.ValueForTest(MetricId::kJobs, {"SUCCEEDED"}), 1);
  EXPECT_EQ(cluster.metrics.ValueForTest(MetricId::kStageDuration, {"train_batch"}), 3);
}

TEST(JobManagerTest, AGangMeetsAtRankZeroAndSharesTheWorld) {
  TestCluster cluster;
  FakeWorker& first = cluster.AddWorker("w1", 2);
  FakeWorker& second = cluster.AddWorker("w2", 2);
  cluster.Await(cluster.Submit(TestCluster::Spec(/*ranks=*/2, /*hosts=*/2)), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(first.engines_ever_started(), 2);
  for (FakeWorker* worker : {&first, &second}) {
    EXPECT_EQ(worker->last_initialize().world_size(), 4);
    EXPECT_EQ(worker->last_initialize().rendezvous_address(), "tcp:host:1234");
  }
}

TEST(JobManagerTest, AWarningOfAnEngineIsAnEventOnceAndNotTheJobsStatus) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 2);
  worker.WarnInStage("train_batch", "the disk is nearly full");
  worker.WarnInStage("export_weights", "slow");
  v1::JobSpec spec = TestCluster::Spec(/*ranks=*/2);
  spec.mutable_trainer()->set_export_hf_model(true);
  const std::string id = cluster.Submit(spec);
  const v1::Job job = cluster.Await(id, v1::JOB_STATE_SUCCEEDED);
  std::vector<std::string> warnings;
  for (const v1::JobEvent& event : cluster.EventsOf(id)) {
    if (event.warning()) warnings.push_back(event.message());
    EXPECT_EQ(event.warning(),
              event.message() == "rank 0: the disk is nearly full" || event.message() == "rank 0: slow");
  }
  EXPECT_THAT(warnings, ElementsAre("rank 0: the disk is nearly full", "rank 0: slow"));
  EXPECT_THAT(job.status_message(), Not(HasSubstr("slow")));
}

TEST(JobManagerTest, AUsersErrorIsFinal) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.FailStage("initialize", 0, absl::InvalidArgumentError("data.train_files: train.jsonl:17: not valid JSON"));
  const v1::Job job = cluster.Await(cluster.Submit(TestCluster::Spec()), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.failure().reason(), v1::FAILURE_REASON_INVALID);
  EXPECT_EQ(job.failure().message(), "data.train_files: train.jsonl:17: not valid JSON");
  EXPECT_EQ(job.attempt(), 1);
  EXPECT_EQ(worker.engines_running(), 0);
}

TEST(JobManagerTest, ACrashResumesFromTheCheckpoint) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.FailStage("train_batch", 7, Crash(0));
  v1::JobSpec spec = TestCluster::Spec();
  spec.mutable_trainer()->set_resume_mode("disable");
  const std::string id = cluster.Submit(spec);
  const v1::Job job = cluster.Await(id, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.attempt(), 2);
  EXPECT_EQ(worker.last_resume_mode(), "auto") << "the second attempt resumes what the first saved";
  EXPECT_EQ(cluster.store->GetJob(id)->spec().trainer().resume_mode(), "disable")
      << "the job's spec stays as submitted";
  const std::vector<std::string> stages = worker.stages();
  EXPECT_EQ(std::count(stages.begin(), stages.end(), "train_batch 6"), 2);
  EXPECT_EQ(std::count(stages.begin(), stages.end(), "train_batch 5"), 1);
  EXPECT_THAT(cluster.StatesOf(id), ::testing::Contains(v1::JOB_STATE_RECOVERING));
  EXPECT_EQ(cluster.metrics.ValueForTest(MetricId::kJobRestarts, {"ENGINE_CRASHED"}), 1);
}

TEST(JobManagerTest, RestartsAreLimited) {  // RUN-4
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.FailStage("train_batch", 2, Crash(0), /*times=*/100);
  const v1::Job job = cluster.Await(cluster.Submit(TestCluster::Spec()), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.attempt(), 3) << "max_restarts is 2";
  EXPECT_EQ(job.failure().reason(), v1::FAILURE_REASON_ENGINE_CRASHED);
  EXPECT_EQ(job.failure().signal(), 11);
}

TEST(JobManagerTest, ALostAttemptPausesLongerEachTimeUntilACheckpointIsMade) {
  TestCluster cluster(/*settle=*/absl::ZeroDuration(), /*first_backoff=*/absl::Seconds(10));
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.FailStage("train_batch", 2, Crash(0), /*times=*/2);
  worker.FailStage("train_batch", 7, Crash(0));
  v1::JobSpec spec = TestCluster::Spec();
  spec.mutable_trainer()->set_max_restarts(3);
  const std::string id = cluster.Submit(spec);
  // Heartbeats go on while time passes.
  const auto pass = [&](absl::Duration time) {
    for (absl::Duration passed; passed < time; passed += absl::Seconds(1)) {
      cluster.clock.Advance(absl::Seconds(1));
      cluster.Heartbeat("w");
    }
  };
  const auto lost = [&](int attempt, const std::string& message) {
    return cluster.AwaitJob(id, [&](const v1::Job& job) {
      return job.attempt() == attempt && job.state() == v1::JOB_STATE_QUEUED && job.status_message() == message;
    });
  };
  lost(1, "queued to start again (there is no checkpoint yet) after a pause of 10s");
  // Another job is not held up by the pause.
  worker.FailStage("initialize", 0, absl::InvalidArgumentError("bad"));
  cluster.Await(cluster.Submit(TestCluster::Spec()), v1::JOB_STATE_FAILED);
  EXPECT_EQ(cluster.store->GetJob(id)->attempt(), 1) << "the pause is not over";
  pass(absl::Seconds(10));
  lost(2, "queued to start again (there is no checkpoint yet) after a pause of 20s (2 attempts in a row were lost)");
  pass(absl::Seconds(20));
  // This attempt made a checkpoint at step 5.
  lost(3, "queued to resume from step 5 after a pause of 10s");
  pass(absl::Seconds(10));
  EXPECT_EQ(cluster.Await(id, v1::JOB_STATE_SUCCEEDED).attempt(), 4);
}

TEST(JobManagerTest, TheCauseIsNamedAndNotThePeersBrokenCollective) {
  TestCluster cluster(/*settle=*/absl::Hours(1));
  FakeWorker& first = cluster.AddWorker("w1", 1);
  FakeWorker& second = cluster.AddWorker("w2", 1);
  first.FailStage("train_batch", 2, absl::AbortedError("all_reduce: the peer closed the connection"));
  second.HangStage("train_batch", 2);
  v1::JobSpec spec = TestCluster::Spec(1, 2);
  spec.mutable_trainer()->set_max_restarts(0);
  const std::string id = cluster.Submit(spec);
  first.AwaitStage("train_batch", 2);
  second.AwaitStage("train_batch", 2);
  second.KillEngines(Crash(1));  // reported after its consequence
  const v1::Job job = cluster.Await(id, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.failure().rank(), 1);
  EXPECT_EQ(job.failure().reason(), v1::FAILURE_REASON_ENGINE_CRASHED);
  EXPECT_EQ(first.engines_running() + second.engines_running(), 0);
}

TEST(JobManagerTest, ALostWorkerIsReplaced) {
  TestCluster cluster;
  FakeWorker& lost = cluster.AddWorker("w1", 1);
  lost.HangStage("train_batch", 3);
  const std::string id = cluster.Submit(TestCluster::Spec());
  lost.AwaitStage("train_batch", 3);
  FakeWorker& other = cluster.AddWorker("w2", 1);
  cluster.clock.Advance(RegistryOptions().lost_after - absl::Seconds(1));
  cluster.Heartbeat("w2");
  EXPECT_EQ(cluster.store->GetJob(id)->attempt(), 1) << "nothing is given up before the lease is over";
  lost.SetReachable(false);
  cluster.clock.Advance(absl::Seconds(2));
  cluster.Heartbeat("w2");
  cluster.Await(id, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(other.engines_ever_started(), 1);
}

TEST(JobManagerTest, AWorkerThatIsStartedAnewLosesItsAttempts) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("train_batch", 3);
  const std::string id = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("train_batch", 3);
  worker.KillEngines(absl::UnavailableError("the daemon was killed"));
  cluster.Register("w", 1, "incarnation-2");
  worker.Release();  // the second attempt does not hang
  EXPECT_EQ(cluster.Await(id, v1::JOB_STATE_SUCCEEDED).attempt(), 2);
}

TEST(JobManagerTest, AnEngineThatAHeartbeatReportsDeadEndsTheAttempt) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("train_batch", 3);
  v1::JobSpec spec = TestCluster::Spec();
  spec.mutable_trainer()->set_max_restarts(0);
  const std::string id = cluster.Submit(spec);
  worker.AwaitStage("train_batch", 3);
  v1::HeartbeatRequest heartbeat;
  v1::AttemptStatus* status = heartbeat.add_attempts();
  status->set_job_id(id);
  status->set_attempt(1);
  status->add_engines()->mutable_failure()->set_reason(v1::FAILURE_REASON_OUT_OF_MEMORY);
  EXPECT_TRUE(cluster.manager->OnHeartbeat(heartbeat).empty());
  EXPECT_EQ(cluster.Await(id, v1::JOB_STATE_FAILED).failure().reason(), v1::FAILURE_REASON_OUT_OF_MEMORY);
}

TEST(JobManagerTest, AControllerRestartEndsOldAttemptsFirstAndDoesNotCount) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("train_batch", 7);
  v1::JobSpec spec = TestCluster::Spec();
  spec.mutable_trainer()->set_max_restarts(0);
  const std::string id = cluster.Submit(spec);
  const std::string waiting = cluster.Submit(spec);
  worker.AwaitStage("train_batch", 7);
  cluster.ledger->Flush(id);
  cluster.RestartController();
  worker.Release();
  // The worker's daemon lives and is asked to stop at once; the job waits for it to register.
  EXPECT_EQ(cluster.Await(id, v1::JOB_STATE_QUEUED).progress().checkpoint_step(), 5);
  EXPECT_EQ(worker.engines_running(), 0);
  cluster.Register("w", 1, "incarnation-1");
  EXPECT_EQ(cluster.Await(id, v1::JOB_STATE_SUCCEEDED).attempt(), 2);
  EXPECT_EQ(*cluster.store->RestartsUsed(id), 0);
  EXPECT_EQ(cluster.Await(waiting, v1::JOB_STATE_SUCCEEDED).attempt(), 1);
}

TEST(JobManagerTest, AControllerRestartWaitsOutTheLeaseOfASilentWorker) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("train_batch", 7);
  const std::string id = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("train_batch", 7);
  worker.SetReachable(false);
  cluster.RestartController();
  cluster.AwaitMessage(id, "waits for worker w");
  EXPECT_NE(cluster.store->GetJob(id)->state(), v1::JOB_STATE_QUEUED);
  cluster.clock.Advance(RegistryOptions().lost_after);
  cluster.Await(id, v1::JOB_STATE_QUEUED);
}

TEST(JobManagerTest, ShutdownQueuesRunningJobsAgain) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("train_batch", 7);
  const std::string id = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("train_batch", 7);
  cluster.manager->Shutdown(absl::InfiniteFuture());
  EXPECT_EQ(cluster.store->GetJob(id)->state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(*cluster.store->RestartsUsed(id), 0);
  EXPECT_EQ(worker.engines_running(), 0);
  EXPECT_EQ(cluster.manager->Submit({"", ""}, TestCluster::Spec()).status().code(), absl::StatusCode::kUnavailable);
}

TEST(JobManagerTest, ASaveThatHangsDoesNotHoldUpACancelForEver) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("save_checkpoint", 5);
  const std::string id = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("save_checkpoint", 5);
  ASSERT_OK(cluster.manager->Cancel(id, ""));
  EXPECT_EQ(worker.engines_running(), 1);
  for (absl::Duration waited; waited < cluster.options.cancel_save_limit; waited += absl::Seconds(5)) {
    cluster.clock.Advance(absl::Seconds(5));
    cluster.Heartbeat("w");
  }
  cluster.Await(id, v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(worker.engines_running(), 0);
}

TEST(JobManagerTest, TheHeadOfTheQueueSaysWhyItWaits) {
  TestCluster cluster;
  const std::string id = cluster.Submit(TestCluster::Spec(2));
  EXPECT_THAT(cluster.AwaitMessage(id, "no worker is ready").status_message(), HasSubstr("needs 2 ranks"));
  cluster.AddWorker("w", 1);
  cluster.AwaitMessage(id, "only 0 have that many rank slots at all");
  cluster.AddWorker("w2", 2);
  cluster.Await(id, v1::JOB_STATE_SUCCEEDED);
}

TEST(JobManagerTest, StalePeersAreToldToStop) {
  TestCluster cluster;
  cluster.AddWorker("w", 1);
  v1::HeartbeatRequest heartbeat;
  heartbeat.add_attempts()->set_job_id("job-77");
  const auto stop = cluster.manager->OnHeartbeat(heartbeat);
  ASSERT_EQ(stop.size(), 1u);
  EXPECT_EQ(stop[0].job_id(), "job-77");
}

}  // namespace
}  // namespace sluice::controller
