// Stages that run at once, through the manager and the runner: pools, faults, metrics.

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/proto_time.h"
#include "controller/testing/test_cluster.h"

namespace sluice::controller {
namespace {

using ::sluice::controller::testing::FakeWorker;
using ::sluice::controller::testing::TestCluster;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

v1::JobSpec Policy() {
  v1::JobSpec spec = TestCluster::Spec();
  spec.set_recipe("grpo");
  spec.mutable_algorithm()->set_adv_estimator("grpo");
  spec.mutable_reward()->set_kind("gsm8k");
  spec.mutable_rollout()->set_mode("sync");
  return spec;
}

v1::JobSpec OneStepOff() {
  v1::JobSpec spec = Policy();
  spec.mutable_trainer()->set_n_gpus_per_node(2);
  spec.mutable_rollout()->set_mode("one_step_off");
  for (const char* role : {"actor", "rollout"}) {
    v1::PoolSpec* pool = spec.add_pools();
    pool->set_pool(role);
    pool->set_ranks(1);
    pool->add_roles(role);
  }
  return spec;
}

TEST(PipelineTest, ASlowRewardDoesNotHoldUpTheLogProbabilities) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.total_steps = 2;
  worker.HangStage("reward", 1);
  const std::string id = cluster.Submit(Policy());
  worker.AwaitStage("reward", 1);
  worker.AwaitStage("logprob", 1);  // comes only if it need not wait for the reward
  EXPECT_THAT(worker.stages(), Not(Contains("advantage 1")));
  worker.Release();
  EXPECT_EQ(cluster.Await(id, v1::JOB_STATE_SUCCEEDED).progress().step(), 2);
  cluster.manager->Shutdown(absl::InfiniteFuture());
  EXPECT_EQ(cluster.metrics.ValueForTest(MetricId::kStageDuration, {"reward"}), 2);
  EXPECT_EQ(cluster.metrics.ValueForTest(MetricId::kStageWait, {"advantage"}), 2);
  EXPECT_EQ(cluster.metrics.ValueForTest(MetricId::kStageTokens, {"update"}), 200);
}

TEST(PipelineTest, APoolGeneratesWhileTheOtherTrains) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 2);
  worker.total_steps = 3;
  worker.HangStage("update", 1);
  const std::string id = cluster.Submit(OneStepOff());
  worker.AwaitStage("update", 1);
  worker.AwaitStage("generate", 2);
  EXPECT_THAT(worker.stages(), Not(Contains("weight_sync 1")));
  EXPECT_THAT(worker.stages(), Not(Contains("generate 3"))) << "no more than one step off";
  worker.Release();
  cluster.Await(id, v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(worker.stages(), Contains("weight_sync 1"));
  EXPECT_THAT(worker.RanksAsked("generate", 2), ElementsAre(1));
  EXPECT_THAT(worker.RanksAsked("update", 2), ElementsAre(0));
  EXPECT_THAT(worker.RanksAsked("weight_sync", 1), ElementsAre(0, 1));
  EXPECT_THAT(worker.RanksAsked("save_checkpoint", 3), ElementsAre(0));
}

TEST(PipelineTest, EventsSayWhenEachStageRan) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 2);
  worker.total_steps = 3;
  worker.HangStage("update", 1);
  worker.HangStage("generate", 2);
  const std::string id = cluster.Submit(OneStepOff());
  worker.AwaitStage("update", 1);
  worker.AwaitStage("generate", 2);
  const absl::Time since = cluster.clock.Now();
  cluster.clock.Advance(absl::Seconds(3));
  worker.Release();
  cluster.Await(id, v1::JOB_STATE_SUCCEEDED);
  std::map<std::string, v1::StageSpan> spans;
  for (const v1::JobEvent& event : cluster.EventsOf(id)) {
    for (const v1::StageSpan& span : event.spans()) {
      EXPECT_TRUE(spans.try_emplace(absl::StrCat(span.op(), " ", span.step()), span).second)
          << "twice: " << span.ShortDebugString();
    }
  }
  for (const char* of_two : {"update 1", "generate 2"}) {
    EXPECT_EQ(FromTimestamp(spans[of_two].begin_time()), since) << of_two;
    EXPECT_EQ(FromTimestamp(spans[of_two].end_time()), since + absl::Seconds(3)) << of_two;
  }
  EXPECT_EQ(FromTimestamp(spans["generate 1"].end_time()), since);
  EXPECT_EQ(FromTimestamp(spans["generate 3"].begin_time()), since + absl::Seconds(3));
  for (const char* last : {"initialize 0", "reward 3", "update 3", "save_checkpoint 3"}) {
    EXPECT_TRUE(spans.contains(last)) << last;
  }
}

TEST(PipelineTest, AStageThatFailsEndsThoseBesideIt) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 2);
  worker.total_steps = 3;
  worker.HangStage("generate", 2);
  v1::Failure failure;
  failure.set_reason(v1::FAILURE_REASON_ENGINE_CRASHED);
  failure.set_rank(0);
  failure.set_message("rank 0 died by signal 9");
  worker.FailStage("update", 1, WithFailure(absl::AbortedError("died"), failure));
  const std::string id = cluster.Submit(OneStepOff());
  cluster.AwaitJob(id, [](const v1::Job& job) { return job.attempt() == 2; });
  std::string messages;
  for (const v1::JobEvent& event : cluster.EventsOf(id)) messages += event.message() + "\n";
  EXPECT_THAT(messages, HasSubstr("attempt 1 was lost: rank 0 died by signal 9"));
  worker.Release();
  EXPECT_EQ(cluster.Await(id, v1::JOB_STATE_SUCCEEDED).progress().step(), 3);
}

TEST(PipelineTest, ACancelEndsAllThatRun) {
  TestCluster cluster;
  FakeWorker& worker = cluster.AddWorker("w", 2);
  worker.HangStage("update", 1);
  worker.HangStage("generate", 2);
  const std::string id = cluster.Submit(OneStepOff());
  worker.AwaitStage("update", 1);
  worker.AwaitStage("generate", 2);
  ASSERT_OK(cluster.manager->Cancel(id, ""));
  cluster.Await(id, v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(worker.engines_running(), 0);
}

}  // namespace
}  // namespace sluice::controller
