// The controller's inside without gRPC, on a fake clock with fake workers: for tests of the manager and the runners.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/build_info.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "controller/job_ledger.h"
#include "controller/job_manager.h"
#include "controller/job_states.h"
#include "controller/store/sqlite_store.h"
#include "controller/testing/fake_worker.h"
#include "controller/worker_registry.h"

namespace sluice::controller::testing {

class TestCluster {
 public:
  // `settle` as in AttemptOptions: on the fake clock, how long a gang's other ranks are awaited after the first
  // failure. `first_backoff` as in RestartBackoff, without spread.
  explicit TestCluster(absl::Duration settle = absl::ZeroDuration(),
                       absl::Duration first_backoff = absl::ZeroDuration()) {
    options.settle = settle;
    options.backoff.first = first_backoff;
    options.backoff.spread = 0;
    StartController();
  }

  // Adds a worker with an address of its own name and registers it.
  FakeWorker& AddWorker(const std::string& worker_id, int slots, const std::string& device = "cpu") {
    workers_[worker_id] = std::make_shared<FakeWorker>();
    Register(worker_id, slots, "incarnation-1", device);
    return *workers_[worker_id];
  }

  void Register(const std::string& worker_id, int slots, const std::string& incarnation,
                const std::string& device = "cpu") {
    v1::RegisterWorkerRequest request;
    request.set_worker_id(worker_id);
    request.set_incarnation(incarnation);
    request.set_address(worker_id);
    request.mutable_resources()->set_rank_slots(slots);
    request.mutable_resources()->set_device(device);
    request.set_version(BuildVersion());
    ASSERT_OK(registry->Register(request));
    manager->WorkersChanged();
  }

  // One heartbeat; the attempts that the controller wants stopped.
  std::vector<v1::AttemptKey> Heartbeat(const std::string& worker_id,
                                        const std::string& incarnation = "incarnation-1") {
    if (!registry->Heartbeat(worker_id, incarnation).ok()) return {};
    v1::HeartbeatRequest request;
    request.set_worker_id(worker_id);
    for (v1::AttemptStatus& status : workers_[worker_id]->attempts()) *request.add_attempts() = std::move(status);
    return manager->OnHeartbeat(request);
  }

  static v1::JobSpec Spec(int ranks = 1, int hosts = 1) {
    v1::JobSpec spec;
    spec.set_name("run");
    spec.set_recipe("sft");
    spec.mutable_trainer()->set_nnodes(hosts);
    spec.mutable_trainer()->set_n_gpus_per_node(ranks);
    spec.mutable_trainer()->set_save_freq("5");
    spec.mutable_trainer()->set_test_freq("-1");
    spec.mutable_trainer()->set_resume_mode("auto");
    spec.mutable_trainer()->set_max_restarts(2);
    spec.mutable_checkpoint()->add_save_contents("model");
    return spec;
  }

  std::string Submit(const v1::JobSpec& spec) { return manager->Submit({"", ""}, spec)->job_id(); }

  // Blocks until the job is in this state and returns it.
  v1::Job Await(const std::string& job_id, v1::JobState state) {
    return AwaitJob(job_id, [state](const v1::Job& job) { return job.state() == state; });
  }
  v1::Job AwaitMessage(const std::string& job_id, const std::string& part) {
    return AwaitJob(job_id,
                    [part](const v1::Job& job) { return job.status_message().find(part) != std::string::npos; });
  }
  template <typename Predicate>
  v1::Job AwaitJob(const std::string& job_id, Predicate predicate) {
    while (true) {
      int64_t seen = 0;
      {
        absl::MutexLock lock(&mutex_);
        seen = changes_;
      }
      const v1::Job job = *store->GetJob(job_id);
      if (predicate(job)) return job;
      // What was noted becomes a change without the fake clock having to move.
      ledger->Flush(job_id);
      absl::MutexLock lock(&mutex_);
      if (changes_ == seen) changed_.WaitWithTimeout(&mutex_, absl::Milliseconds(5));
    }
  }

  std::vector<v1::JobEvent> EventsOf(const std::string& job_id) { return *store->EventsSince(job_id, 0, 100000); }

  std::vector<v1::JobState> StatesOf(const std::string& job_id) {
    std::vector<v1::JobState> states;
    for (const v1::JobEvent& event : EventsOf(job_id)) {
      if (states.empty() || states.back() != event.state()) states.push_back(event.state());
    }
    return states;
  }

  // As after kill -9: nothing is ended, the store is opened anew. Workers stay, and are to register again.
  void RestartController() {
    manager->Shutdown(absl::InfinitePast());
    manager.reset();
    ledger.reset();
    registry.reset();
    store.reset();
    StartController();
  }

  FakeWorker& worker(const std::string& worker_id) { return *workers_[worker_id]; }

  FakeClock clock;
  Metrics metrics{MetricRole::kController};
  AttemptOptions options;
  std::unique_ptr<SqliteStore> store;
  std::unique_ptr<JobLedger> ledger;
  std::unique_ptr<WorkerRegistry> registry;
  std::unique_ptr<JobManager> manager;

 private:
  void StartController() {
    auto opened = SqliteStore::Open(folder_.Join("store.db"));
    ASSERT_OK(opened);
    store = *std::move(opened);
    ledger = std::make_unique<JobLedger>(store.get(), &clock, &metrics);
    ledger->SetListener([this](const std::string&) {
      absl::MutexLock lock(&mutex_);
      ++changes_;
      changed_.SignalAll();
    });
    registry = std::make_unique<WorkerRegistry>(RegistryOptions(), &clock, &metrics);
    const WorkerClientFactory clients = [this](const std::string& address) { return workers_.at(address); };
    manager = std::make_unique<JobManager>(
        AttemptRunner::Environment{ledger.get(), store.get(), registry.get(), clients, &clock, &metrics, options},
        registry.get());
    ASSERT_OK(manager->Start());
  }

  ::sluice::testing::TempDir folder_;
  std::map<std::string, std::shared_ptr<FakeWorker>> workers_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  int64_t changes_ = 0;
};

}  // namespace sluice::controller::testing
