// Decides which queued jobs start and which wait. Pure: no clock, no I/O, no memory between calls; the same inputs give
// the same decisions.
//
// Invariants (tests cite them by number):
//   SCHED-1  A job's ranks are all placed or none (gang).
//   SCHED-2  A rank slot is given to at most one job.
//   SCHED-3  Jobs start in the order of the queue: none starts before one that stands ahead of it and is due.
//   SCHED-4  The first job that is due starts whenever the cluster can hold it.
//   SCHED-5  The ranks of one host of a job are consecutive and on one worker; the hosts of a job are different workers
//   of
//            one kind of device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "controller/scheduler/snapshot.h"

namespace sluice::controller {

struct RankPlacement {
  int32_t rank = 0;
  std::string worker_id;
};

struct Decision {
  enum class Kind { kStart, kWait, kNotDue };  // kNotDue: its restart has to wait, whatever is free
  Kind kind = Kind::kWait;
  std::string job_id;
  std::vector<RankPlacement> ranks;  // kStart only: one entry for each rank, in order
  std::string reason;  // one sentence for people: "needs 8 ranks on one worker; the most that one has free is 5"
};

// One decision for each queued job, in the order of the queue. Of the workers that can take a host of the job it takes
// those that are left with the fewest free slots, so that whole workers stay free for jobs that need them. O(jobs +
// starts * workers log workers).
std::vector<Decision> Schedule(absl::Time now, const ClusterSnapshot& cluster, const QueueSnapshot& queue);

}  // namespace sluice::controller
