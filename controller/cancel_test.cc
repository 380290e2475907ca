// A cancel at every moment of a job's life. The moments are those of tests/golden/control/J02.json; each has its test
// here or is named with the reason why not.
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "controller/testing/test_cluster.h"
#include "nlohmann/json.hpp"

namespace sluice::controller {
namespace {

using ::sluice::controller::testing::FakeWorker;
using ::sluice::controller::testing::TestCluster;
using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

const v1::JobState kCancelled = v1::JOB_STATE_CANCELLED;

void ExpectNothingIsLeft(TestCluster& cluster) {
  std::vector<v1::Worker> workers = cluster.registry->List();
  for (const v1::Worker& worker : workers) EXPECT_EQ(cluster.worker(worker.worker_id()).engines_running(), 0);
}

void Queued(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("train_batch", 1);
  const std::string first = cluster.Submit(TestCluster::Spec());
  const std::string x = cluster.Submit(TestCluster::Spec());
  const std::string y = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("train_batch", 1);
  EXPECT_EQ(cluster.manager->Cancel(x, "")->state(), kCancelled);
  EXPECT_EQ(worker.engines_ever_started(), 1);
  worker.Release();
  cluster.Await(first, v1::JOB_STATE_SUCCEEDED);
  cluster.Await(y, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(worker.engines_ever_started(), 2);
  EXPECT_EQ(cluster.store->GetJob(x)->attempt(), 0);
}

// Many times, so that the cancel meets every point of the admission.
void QueuedThenCapacityFrees(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("initialize", 0);
  for (int i = 0; i < 30; ++i) {
    const std::string x = cluster.Submit(TestCluster::Spec());
    if (i % 3 == 1) cluster.Await(x, v1::JOB_STATE_STARTING);
    ASSERT_OK(cluster.manager->Cancel(x, ""));
    cluster.Await(x, kCancelled);
    for (const v1::JobState state : cluster.StatesOf(x)) EXPECT_NE(state, v1::JOB_STATE_RUNNING);
  }
  ExpectNothingIsLeft(cluster);
}

void GangHalfPlaced(TestCluster& cluster) {
  for (const char* id : {"w1", "w2", "w3", "w4"}) cluster.AddWorker(id, 1);
  cluster.worker("w3").HangStart();
  cluster.worker("w4").HangStart();
  const std::string x = cluster.Submit(TestCluster::Spec(/*ranks=*/1, /*hosts=*/4));
  for (const char* id : {"w1", "w2", "w3", "w4"}) cluster.worker(id).AwaitStart();
  ASSERT_OK(cluster.manager->Cancel(x, ""));
  cluster.Await(x, kCancelled);
  ExpectNothingIsLeft(cluster);
  // What was reserved is free: another gang of four starts.
  for (const char* id : {"w3", "w4"}) cluster.worker(id).Release();
  cluster.Await(cluster.Submit(TestCluster::Spec(1, 4)), v1::JOB_STATE_SUCCEEDED);
}

void Starting(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("initialize", 0);
  const std::string x = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("initialize", 0);
  EXPECT_EQ(cluster.manager->Cancel(x, "")->state(), v1::JOB_STATE_CANCELLING);
  cluster.Await(x, kCancelled);
  EXPECT_EQ(worker.last_grace_s(), absl::ToDoubleSeconds(cluster.options.cancel_grace));
  ExpectNothingIsLeft(cluster);
}

void EngineNeverCameUp(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStart();
  const std::string x = cluster.Submit(TestCluster::Spec());
  worker.AwaitStart();
  ASSERT_OK(cluster.manager->Cancel(x, ""));
  cluster.Await(x, kCancelled);
  // The start call that was lost on the way arrives now.
  ASSERT_OK_AND_ASSIGN(const AttemptRecord record, cluster.store->GetAttempt(x, 1));
  v1::StartAttemptRequest late;
  late.set_job_id(x);
  late.set_attempt(1);
  late.set_epoch(record.epoch);
  late.add_ranks(0);
  EXPECT_THAT(worker.StartAttempt(late, {}), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("epoch")));
  ExpectNothingIsLeft(cluster);
}

void Running(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("train_batch", 7);
  const std::string x = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("train_batch", 7);
  ASSERT_OK(cluster.manager->Cancel(x, "not needed"));
  const v1::Job job = cluster.Await(x, kCancelled);
  EXPECT_EQ(job.progress().checkpoint_step(), 5);
  EXPECT_EQ(worker.checkpoints(), std::set<int64_t>{5});
  ExpectNothingIsLeft(cluster);
}

void Saving(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("save_checkpoint", 10);
  const std::string x = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("save_checkpoint", 10);
  EXPECT_EQ(cluster.manager->Cancel(x, "")->state(), v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(worker.engines_running(), 1) << "the save goes on";
  worker.Release();
  cluster.Await(x, kCancelled);
  EXPECT_EQ(worker.checkpoints(), (std::set<int64_t>{5, 10}));
  EXPECT_EQ(cluster.store->GetJob(x)->progress().checkpoint_step(), 10);
  ExpectNothingIsLeft(cluster);
}

void FinishingFirst(TestCluster& cluster) {
  cluster.AddWorker("w", 1);
  const std::string x = cluster.Submit(TestCluster::Spec());
  cluster.Await(x, v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(cluster.manager->Cancel(x, ""), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("SUCCEEDED")));
  EXPECT_EQ(cluster.StatesOf(x).back(), v1::JOB_STATE_SUCCEEDED);
}

void CancelFirst(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("save_checkpoint", 10);
  const std::string x = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("save_checkpoint", 10);
  ASSERT_OK(cluster.manager->Cancel(x, ""));
  worker.Release();  // all that was left of the job succeeds
  EXPECT_EQ(cluster.Await(x, kCancelled).state(), kCancelled);
  for (const v1::JobState state : cluster.StatesOf(x)) EXPECT_NE(state, v1::JOB_STATE_SUCCEEDED);
}

void Twice(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("train_batch", 1);
  const std::string x = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("train_batch", 1);
  EXPECT_OK(cluster.manager->Cancel(x, ""));
  EXPECT_OK(cluster.manager->Cancel(x, ""));
  cluster.Await(x, kCancelled);
  EXPECT_OK(cluster.manager->Cancel(x, ""));
  std::map<v1::JobState, int> events;
  for (const v1::JobEvent& event : cluster.EventsOf(x)) ++events[event.state()];
  EXPECT_EQ(events[v1::JOB_STATE_CANCELLING], 1);
  EXPECT_EQ(events[kCancelled], 1);
}

void Unknown(TestCluster& cluster) {
  EXPECT_THAT(cluster.manager->Cancel("nope", ""), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nope")));
}

void FailedAlready(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.FailStage("initialize", 0, absl::InvalidArgumentError("model.path: no config.json"));
  const std::string x = cluster.Submit(TestCluster::Spec());
  cluster.Await(x, v1::JOB_STATE_FAILED);
  EXPECT_THAT(cluster.manager->Cancel(x, ""), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("FAILED")));
  EXPECT_EQ(cluster.store->GetJob(x)->failure().reason(), v1::FAILURE_REASON_INVALID);
}

// The wait between two attempts is the wait for the old attempt's worker.
void InBackOff(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("train_batch", 3);
  const std::string x = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("train_batch", 3);
  worker.SetReachable(false);
  worker.Release();  // step 4 does not get through
  cluster.Await(x, v1::JOB_STATE_RECOVERING);
  ASSERT_OK(cluster.manager->Cancel(x, ""));
  cluster.clock.Advance(absl::Seconds(120));
  cluster.Await(x, kCancelled);
  EXPECT_EQ(cluster.store->GetJob(x)->attempt(), 1);
}

void WorkerUnreachable(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("train_batch", 3);
  const std::string x = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("train_batch", 3);
  worker.SetReachable(false);
  ASSERT_OK(cluster.manager->Cancel(x, ""));
  EXPECT_EQ(cluster.AwaitMessage(x, "waits for worker w to stop its engines").state(), v1::JOB_STATE_CANCELLING);
  cluster.clock.Advance(RegistryOptions().lost_after);
  cluster.Await(x, kCancelled);
  // It comes back, still stepping X.
  worker.SetReachable(true);
  EXPECT_EQ(worker.engines_running(), 1);
  cluster.Register("w", 1, "incarnation-1");
  std::vector<v1::AttemptKey> stop;
  while (stop.empty()) stop = cluster.Heartbeat("w");  // once the runner is no more
  ASSERT_EQ(stop.size(), 1u);
  EXPECT_EQ(stop[0].job_id(), x);
  EXPECT_EQ(cluster.store->GetJob(x)->state(), kCancelled);
}

void ControllerRestartWhileCancelling(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.HangStage("save_checkpoint", 5);
  const std::string x = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("save_checkpoint", 5);
  ASSERT_OK(cluster.manager->Cancel(x, ""));
  cluster.RestartController();
  cluster.Await(x, kCancelled);
  const std::vector<v1::JobState> states = cluster.StatesOf(x);
  ASSERT_GE(states.size(), 2u);
  EXPECT_EQ(states[states.size() - 2], v1::JOB_STATE_CANCELLING) << "nothing between the two";
  EXPECT_EQ(worker.engines_running(), 0);
}

void IgnoresSigterm(TestCluster& cluster) {
  FakeWorker& worker = cluster.AddWorker("w", 1);
  worker.IgnoreAsking();
  worker.HangStage("train_batch", 1);
  const std::string x = cluster.Submit(TestCluster::Spec());
  worker.AwaitStage("train_batch", 1);
  ASSERT_OK(cluster.manager->Cancel(x, ""));
  cluster.Await(x, kCancelled);
  EXPECT_EQ(worker.engines_killed(), 1);
  ExpectNothingIsLeft(cluster);
}

void Many(TestCluster& cluster) {
  constexpr int kRunning = 20,
                kQueued = 200;  // fewer queued than in the field report: each submission is a write to the disk
  FakeWorker& worker = cluster.AddWorker("w", kRunning);
  worker.HangStage("train_batch", 1);
  std::vector<std::string> ids;
  for (int i = 0; i < kRunning + kQueued; ++i) ids.push_back(cluster.Submit(TestCluster::Spec()));
  for (int i = 0; i < kRunning; ++i) cluster.Await(ids[i], v1::JOB_STATE_RUNNING);
  std::vector<std::thread> threads;
  for (int part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] {
      for (size_t i = part; i < ids.size(); i += 4) {
        EXPECT_OK(cluster.manager->Cancel(ids[i], ""));
        EXPECT_OK(cluster.store->GetJob(ids[0]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& id : ids) cluster.Await(id, kCancelled);
  ExpectNothingIsLeft(cluster);
}

using Moment = std::function<void(TestCluster&)>;

const std::map<std::string, Moment>& Moments() {
  static const auto* const moments =
      new std::map<std::string, Moment>{{"queued", Queued},
                                        {"queued_then_capacity_frees_in_the_same_cycle", QueuedThenCapacityFrees},
                                        {"gang_half_placed", GangHalfPlaced},
                                        {"starting", Starting},
                                        {"engine_never_came_up", EngineNeverCameUp},
                                        {"running", Running},
                                        {"saving", Saving},
                                        {"finishing_first", FinishingFirst},
                                        {"cancel_first", CancelFirst},
                                        {"twice", Twice},
                                        {"unknown", Unknown},
                                        {"failed_already", FailedAlready},
                                        {"in_back_off", InBackOff},
                                        {"worker_unreachable", WorkerUnreachable},
                                        {"controller_restart_while_cancelling", ControllerRestartWhileCancelling},
                                        {"ignores_sigterm", IgnoresSigterm},
                                        {"many", Many}};
  return *moments;
}

// There is no SUSPENDED state yet; processes that an engine starts are the worker's to end (worker tests).
const std::set<std::string>& MomentsOfOthers() {
  static const auto* const others = new std::set<std::string>{"suspended", "engine_has_children"};
  return *others;
}

class CancelTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CancelTest, EndsAsItShould) {
  TestCluster cluster;
  Moments().at(GetParam())(cluster);
}

std::vector<std::string> MomentNames() {
  std::vector<std::string> names;
  for (const auto& [name, moment] : Moments()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Moments, CancelTest, ::testing::ValuesIn(MomentNames()),
                         [](const auto& info) { return info.param; });

TEST(CancelMomentsTest, EveryMomentHasItsTest) {
  std::ifstream file("tests/golden/control/J02.json");
  for (const auto& moment : nlohmann::json::parse(file)) {
    const auto name = moment["case"].get<std::string>();
    EXPECT_EQ(Moments().count(name) + MomentsOfOthers().count(name), 1u) << name;
  }
}

}  // namespace
}  // namespace sluice::controller
