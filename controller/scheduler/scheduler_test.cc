#include "controller/scheduler/scheduler.h"

#include <gmock/gmock.h>

#include <map>
#include <random>
#include <set>

namespace sluice::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = Decision::Kind;

const absl::Time kNow = absl::FromUnixSeconds(1000);

WorkerSnapshot Worker(const std::string& id, int slots, int used = 0, const std::string& device = "cpu",
                      bool ready = true) {
  return {id, device, slots, used, ready};
}

QueuedJob Job(const std::string& id, int hosts, int ranks, const std::string& device = "auto") {
  return {id, hosts, ranks, device, kNow - absl::Seconds(5)};
}

std::vector<std::string> WorkersOf(const Decision& decision) {
  std::vector<std::string> workers;
  for (const RankPlacement& rank : decision.ranks) workers.push_back(rank.worker_id);
  return workers;
}

TEST(ScheduleTest, StartsWhatFits) {
  const auto decisions = Schedule(kNow, {Worker("a", 2)}, {Job("job-1", 1, 1), Job("job-2", 1, 1), Job("job-3", 1, 1)});
  ASSERT_EQ(decisions.size(), 3u);
  EXPECT_EQ(decisions[0].kind, Kind::kStart);
  EXPECT_EQ(decisions[0].reason, "starts 1 rank on 1 worker after waiting 5s");
  EXPECT_EQ(decisions[1].kind, Kind::kStart);
  EXPECT_EQ(decisions[2].kind, Kind::kWait);
  EXPECT_EQ(decisions[2].reason, "needs 1 rank on one worker; the most that one has free is 0");
}

TEST(ScheduleTest, TheHeadHoldsBackWhatIsBehindIt) {  // SCHED-3
  const auto decisions = Schedule(kNow, {Worker("a", 4, 2)}, {Job("job-1", 1, 4), Job("job-2", 1, 1)});
  EXPECT_EQ(decisions[0].reason, "needs 4 ranks on one worker; the most that one has free is 2");
  EXPECT_EQ(decisions[1].kind, Kind::kWait);
  EXPECT_EQ(decisions[1].reason, "waits its turn behind job-1");
}

TEST(ScheduleTest, AJobThatIsNotDueHoldsNobodyBack) {  // SCHED-3, SCHED-4
  QueuedJob lost = Job("job-1", 1, 1);
  lost.not_before = kNow + absl::Seconds(65);
  auto decisions = Schedule(kNow, {Worker("a", 1)}, {lost, Job("job-2", 1, 1)});
  EXPECT_EQ(decisions[0].kind, Kind::kNotDue);
  EXPECT_EQ(decisions[0].reason, "restarts at 00:17:45 UTC at the earliest");
  EXPECT_TRUE(decisions[0].ranks.empty());
  EXPECT_EQ(decisions[1].kind, Kind::kStart);
  // When it is due it has its place in the queue again.
  decisions = Schedule(lost.not_before, {Worker("a", 1)}, {lost, Job("job-2", 1, 1)});
  EXPECT_EQ(decisions[0].kind, Kind::kStart);
  EXPECT_EQ(decisions[1].kind, Kind::kWait);
}

TEST(ScheduleTest, KeepsWholeWorkersFree) {
  const auto decisions = Schedule(kNow, {Worker("a", 8), Worker("b", 8, 5)}, {Job("job-1", 1, 2), Job("job-2", 1, 8)});
  EXPECT_THAT(WorkersOf(decisions[0]), ElementsAre("b", "b"));
  EXPECT_EQ(decisions[1].kind, Kind::kStart);
}

TEST(ScheduleTest, RanksOfAHostAreTogether) {  // SCHED-5
  const auto decisions = Schedule(kNow, {Worker("a", 2), Worker("b", 2), Worker("c", 1)}, {Job("job-1", 2, 2)});
  EXPECT_THAT(WorkersOf(decisions[0]), ElementsAre("a", "a", "b", "b"));
  EXPECT_EQ(decisions[0].ranks[3].rank, 3);
}

TEST(ScheduleTest, DevicesAreRespected) {
  const ClusterSnapshot cluster = {Worker("cpu", 4), Worker("gpu", 1, 0, "cuda")};
  EXPECT_THAT(WorkersOf(Schedule(kNow, cluster, {Job("j", 1, 1, "auto")})[0]), ElementsAre("gpu"));
  EXPECT_THAT(WorkersOf(Schedule(kNow, cluster, {Job("j", 1, 1, "cpu")})[0]), ElementsAre("cpu"));
  EXPECT_THAT(WorkersOf(Schedule(kNow, cluster, {Job("j", 1, 2, "auto")})[0]), ElementsAre("cpu", "cpu"));
  EXPECT_THAT(Schedule(kNow, cluster, {Job("j", 1, 2, "cuda")})[0].reason,
              HasSubstr("needs 2 ranks on one cuda worker"));
  // A gang never mixes devices.
  EXPECT_EQ(Schedule(kNow, {Worker("cpu", 1), Worker("gpu", 1, 0, "cuda")}, {Job("j", 2, 1)})[0].kind, Kind::kWait);
}

TEST(ScheduleTest, WorkersThatAreNotReadyGetNothing) {
  const auto decisions = Schedule(kNow, {Worker("a", 4, 0, "cpu", /*ready=*/false)}, {Job("job-1", 1, 1)});
  EXPECT_EQ(decisions[0].reason, "needs 1 rank on one worker; no worker is ready");
}

TEST(ScheduleTest, SaysWhenAJobCanNeverStart) {
  EXPECT_THAT(
      Schedule(kNow, {Worker("a", 2)}, {Job("job-1", 2, 2)})[0].reason,
      HasSubstr("needs 2 ranks on each of 2 workers; of 1 ready worker only 1 has that many rank slots at all"));
}

// Random jobs come, run for a while and end, workers come and go; every decision of every step is checked.
TEST(SchedulePropertyTest, InvariantsHoldOverRandomTraces) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
    };
    ClusterSnapshot cluster;
    for (int i = draw(0, 6); i > 0; --i) {
      cluster.push_back(Worker("w" + std::to_string(i), draw(1, 8), 0, draw(0, 1) ? "cpu" : "cuda", draw(0, 9) != 0));
    }
    QueueSnapshot queue;
    std::vector<std::map<std::string, int>> running;  // slots by worker
    int next_job = 1;
    for (int step = 0; step < 30; ++step) {
      for (int i = draw(0, 3); i > 0; --i) {
        const char* devices[] = {"auto", "cpu", "cuda"};
        queue.push_back(Job("job-" + std::to_string(next_job++), draw(1, 3), draw(1, 4), devices[draw(0, 2)]));
        if (draw(0, 9) == 0) queue.back().not_before = kNow + absl::Seconds(draw(0, 20));
      }
      if (!running.empty() && draw(0, 1)) {
        for (const auto& [worker_id, slots] : running.front()) {
          for (WorkerSnapshot& worker : cluster) worker.ranks_used -= worker.worker_id == worker_id ? slots : 0;
        }
        running.erase(running.begin());
      }
      for (WorkerSnapshot& worker : cluster) {
        if (draw(0, 19) == 0) worker.ready = !worker.ready;
      }
      const absl::Time now = kNow + absl::Seconds(step);
      const auto decisions = Schedule(now, cluster, queue);
      ASSERT_EQ(decisions.size(), queue.size());
      bool waiting = false;
      for (size_t i = 0; i < queue.size(); ++i) {
        const Decision& decision = decisions[i];
        ASSERT_EQ(decision.job_id, queue[i].job_id);
        ASSERT_FALSE(decision.reason.empty());
        ASSERT_EQ(decision.kind == Kind::kNotDue, now < queue[i].not_before);
        if (decision.kind == Kind::kNotDue) {
          ASSERT_TRUE(decision.ranks.empty());
          continue;
        }
        if (decision.kind == Kind::kWait) {
          ASSERT_TRUE(decision.ranks.empty());  // SCHED-1
          if (!waiting) {                       // SCHED-4: for no kind of device are there enough workers with room
            std::map<std::string, int> fitting;
            for (const WorkerSnapshot& worker : cluster) {
              const bool allowed = queue[i].device != "cuda" || worker.device == "cuda";
              const bool room = worker.rank_slots - worker.ranks_used >= queue[i].ranks_per_host;
              fitting[worker.device] += worker.ready && allowed && room;
            }
            for (const auto& [device, count] : fitting) ASSERT_LT(count, queue[i].hosts) << "seed " << seed;
          }
          waiting = true;
          continue;
        }
        ASSERT_FALSE(waiting) << "SCHED-3, seed " << seed;
        ASSERT_EQ(decision.ranks.size(), static_cast<size_t>(queue[i].hosts * queue[i].ranks_per_host));  // SCHED-1
        std::map<std::string, int> slots;
        std::set<std::string> devices;
        for (size_t rank = 0; rank < decision.ranks.size(); ++rank) {
          ASSERT_EQ(decision.ranks[rank].rank, static_cast<int>(rank));
          ASSERT_EQ(decision.ranks[rank].worker_id,
                    decision.ranks[rank - rank % queue[i].ranks_per_host].worker_id);  // SCHED-5
          ++slots[decision.ranks[rank].worker_id];
        }
        ASSERT_EQ(slots.size(), static_cast<size_t>(queue[i].hosts));  // SCHED-5
        for (WorkerSnapshot& worker : cluster) {
          if (slots.count(worker.worker_id) == 0) continue;
          ASSERT_TRUE(worker.ready);
          devices.insert(worker.device);
          worker.ranks_used += slots[worker.worker_id];
          ASSERT_LE(worker.ranks_used, worker.rank_slots) << "SCHED-2, seed " << seed;
        }
        ASSERT_EQ(devices.size(), 1u);  // SCHED-5
        running.push_back(slots);
      }
      QueueSnapshot left;
      for (size_t i = 0; i < queue.size(); ++i) {
        if (decisions[i].kind != Kind::kStart) left.push_back(queue[i]);
      }
      queue = std::move(left);
    }
  }
}

}  // namespace
}  // namespace sluice::controller
