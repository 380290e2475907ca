#include "controller/scheduler/scheduler.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace sluice::controller {
namespace {

int32_t Free(const WorkerSnapshot& worker) { return worker.rank_slots - worker.ranks_used; }

std::vector<std::string> DevicesToTry(const QueuedJob& job) {
  if (job.device == "cuda") return {"cuda"};
  // A cpu job may sit on a GPU host where there is no other; it then takes one of that host's slots.
  if (job.device == "cpu") return {"cpu", "cuda"};
  return {"cuda", "cpu"};
}

bool Usable(const QueuedJob& job, const WorkerSnapshot& worker) {
  return job.device != "cuda" || worker.device == "cuda";
}

// The workers for the job's hosts, one kind of device; nothing where they do not suffice.
std::optional<std::vector<WorkerSnapshot*>> ChooseHosts(const QueuedJob& job, ClusterSnapshot* cluster) {
  for (const std::string& device : DevicesToTry(job)) {
    std::vector<WorkerSnapshot*> fitting;
    for (WorkerSnapshot& worker : *cluster) {
      if (worker.ready && worker.device == device && Free(worker) >= job.ranks_per_host) fitting.push_back(&worker);
    }
    if (fitting.size() < static_cast<size_t>(job.hosts)) continue;
    std::sort(fitting.begin(), fitting.end(), [](const WorkerSnapshot* a, const WorkerSnapshot* b) {
      return Free(*a) != Free(*b) ? Free(*a) < Free(*b) : a->worker_id < b->worker_id;
    });
    fitting.resize(static_cast<size_t>(job.hosts));
    return fitting;
  }
  return std::nullopt;
}

std::string Plural(int64_t count, const char* noun) { return absl::StrCat(count, " ", noun, count == 1 ? "" : "s"); }

std::string WhyNot(const QueuedJob& job, const ClusterSnapshot& cluster) {
  int32_t ready = 0, with_room = 0, large_enough = 0, most_free = 0;
  for (const WorkerSnapshot& worker : cluster) {
    if (!worker.ready || !Usable(job, worker)) continue;
    ++ready;
    if (worker.rank_slots >= job.ranks_per_host) ++large_enough;
    if (Free(worker) >= job.ranks_per_host) ++with_room;
    most_free = std::max(most_free, Free(worker));
  }
  const std::string kind = job.device == "cuda" ? "cuda worker" : "worker";
  const std::string needs = absl::StrCat(
      "needs ", Plural(job.ranks_per_host, "rank"), " on ",
      job.hosts == 1 ? absl::StrCat("one ", kind) : absl::StrCat("each of ", Plural(job.hosts, kind.c_str())));
  if (ready == 0) return absl::StrCat(needs, "; no ", kind, " is ready");
  if (large_enough < job.hosts) {
    return absl::StrCat(needs, "; of ", Plural(ready, "ready worker"), " only ", large_enough,
                        large_enough == 1 ? " has" : " have",
                        " that many rank slots at all (start more or larger workers, or "
                        "cancel the job and lower trainer.nnodes or trainer.n_gpus_per_node)");
  }
  if (job.hosts == 1) return absl::StrCat(needs, "; the most that one has free is ", most_free);
  return absl::StrCat(needs, "; ", with_room, with_room == 1 ? " has" : " have", " that many free");
}

}  // namespace

std::vector<Decision> Schedule(absl::Time now, const ClusterSnapshot& cluster, const QueueSnapshot& queue) {
  ClusterSnapshot left = cluster;
  std::vector<Decision> decisions;
  decisions.reserve(queue.size());
  std::string blocked_by;
  for (const QueuedJob& job : queue) {
    Decision& decision = decisions.emplace_back();
    decision.job_id = job.job_id;
    if (now < job.not_before) {
      decision.kind = Decision::Kind::kNotDue;
      decision.reason = absl::StrCat("restarts at ", absl::FormatTime("%H:%M:%S", job.not_before, absl::UTCTimeZone()),
                                     " UTC at the earliest");
      continue;
    }
    if (!blocked_by.empty()) {
      decision.reason = absl::StrCat("waits its turn behind ", blocked_by);
      continue;
    }
    const auto hosts = ChooseHosts(job, &left);
    if (!hosts.has_value()) {
      decision.reason = WhyNot(job, left);
      blocked_by = job.job_id;
      continue;
    }
    decision.kind = Decision::Kind::kStart;
    for (WorkerSnapshot* host : *hosts) {
      host->ranks_used += job.ranks_per_host;
      for (int32_t i = 0; i < job.ranks_per_host; ++i) {
        decision.ranks.push_back({static_cast<int32_t>(decision.ranks.size()), host->worker_id});
      }
    }
    decision.reason = absl::StrCat("starts ", Plural(static_cast<int64_t>(decision.ranks.size()), "rank"), " on ",
                                   Plural(job.hosts, "worker"));
    const absl::Duration waited = absl::Trunc(now - job.queued_at, absl::Seconds(1));
    if (waited > absl::ZeroDuration()) {
      absl::StrAppend(&decision.reason, " after waiting ", absl::FormatDuration(waited));
    }
  }
  return decisions;
}

}  // namespace sluice::controller
