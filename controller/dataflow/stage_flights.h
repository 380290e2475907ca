// Stages that run at once: each call on a thread of its own, and what they gave, and when, in the order in which they
// ended.
// Threads: one thread uses it; `stop` may be requested from any. The destructor stops what runs and waits for it.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "controller/dataflow/job_plan.h"
#include "sluice/v1/engine.pb.h"

namespace sluice::controller {

class StageFlights {
 public:
  // Returns when the stage has its answer, or soon after a stop was requested.
  using Call = std::function<absl::StatusOr<v1::StageResponse>(std::stop_token stop)>;

  struct Landed {
    Stage stage;
    absl::StatusOr<v1::StageResponse> response;
    absl::Time began, ended;
  };

  // `stop` ends all calls. REQUIRES: clock outlives the flights.
  StageFlights(std::stop_token stop, const Clock* clock);
  ~StageFlights();

  void Launch(const Stage& stage, Call call);

  // Nothing runs, and everything was landed.
  bool empty() const { return threads_.empty(); }

  // The next that has ended: waits for one. Nothing: `deadline` came first. REQUIRES: !empty().
  std::optional<Landed> Land(absl::Time deadline);

  // Ends the calls that run.
  void Stop() { calls_.request_stop(); }
  bool stopped() const { return calls_.stop_requested(); }

 private:
  struct Ended {
    Landed landed;
    std::list<std::jthread>::iterator thread;
  };

  const Clock* const clock_;
  std::stop_source calls_;
  std::stop_callback<std::function<void()>> forward_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::deque<Ended> ended_ ABSL_GUARDED_BY(mutex_);
  std::list<std::jthread> threads_;  // one for each that runs or was not landed
};

}  // namespace sluice::controller
