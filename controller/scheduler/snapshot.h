// What the scheduler looks at. Plain values, taken at one moment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace sluice::controller {

struct WorkerSnapshot {
  std::string worker_id;
  std::string device;      // `cuda` or `cpu`
  int32_t rank_slots = 0;  // all it has
  int32_t ranks_used = 0;  // reserved by jobs, whether their engines run yet or still do
  bool ready = false;      // heard from in time; others get no new work
};

using ClusterSnapshot = std::vector<WorkerSnapshot>;

// What a queued job needs: `hosts` workers that each have `ranks_per_host` free slots.
struct QueuedJob {
  std::string job_id;
  int32_t hosts = 1;
  int32_t ranks_per_host = 1;
  std::string device = "auto";  // `cuda`, `cpu`, or `auto`: cuda workers if the gang fits on them, else cpu workers
  absl::Time queued_at;
  absl::Time not_before = absl::InfinitePast();  // a lost job's next attempt waits until then
};

using QueueSnapshot = std::vector<QueuedJob>;  // in the order to serve

}  // namespace sluice::controller
