#include "common/config/pools.h"

#include <algorithm>

namespace sluice {
namespace {

bool Hosts(const v1::PoolSpec& pool, const char* role) {
  return std::find(pool.roles().begin(), pool.roles().end(), role) != pool.roles().end();
}

template <typename Predicate>
const Pool& First(const std::vector<Pool>& pools, Predicate predicate) {
  return *std::find_if(pools.begin(), pools.end(), predicate);
}

}  // namespace

std::vector<Pool> PoolsOf(const v1::JobSpec& spec) {
  if (spec.pools().empty()) {
    const int64_t world = int64_t{spec.trainer().nnodes()} * spec.trainer().n_gpus_per_node();
    return {{.name = "all", .ranks = world}};
  }
  std::vector<Pool> pools;
  for (const v1::PoolSpec& pool : spec.pools()) {
    pools.push_back({.name = pool.pool(),
                     .ranks = pool.ranks(),
                     .actor = Hosts(pool, "actor"),
                     .rollout = Hosts(pool, "rollout"),
                     .reference = Hosts(pool, "ref")});
  }
  std::stable_partition(pools.begin(), pools.end(), [](const Pool& pool) { return pool.actor; });
  if (std::none_of(pools.begin(), pools.end(), [](const Pool& pool) { return pool.reference; })) {
    pools.front().reference = true;
  }
  int64_t next = 0;
  for (Pool& pool : pools) {
    pool.first_rank = next;
    next += pool.ranks;
  }
  return pools;
}

const Pool& ActorPool(const std::vector<Pool>& pools) {
  return First(pools, [](const Pool& pool) { return pool.actor; });
}

const Pool& RolloutPool(const std::vector<Pool>& pools) {
  return First(pools, [](const Pool& pool) { return pool.rollout; });
}

const Pool& ReferencePool(const std::vector<Pool>& pools) {
  return First(pools, [](const Pool& pool) { return pool.reference; });
}

const Pool& PoolOfRank(const std::vector<Pool>& pools, int64_t rank) {
  return First(pools, [rank](const Pool& pool) { return pool.Has(rank); });
}

bool RolloutIsSeparate(const v1::JobSpec& spec) { return !spec.pools().empty() && !RolloutPool(PoolsOf(spec)).actor; }

int64_t MostStaleness(const v1::RolloutSpec& rollout) {
  if (rollout.mode() == "one_step_off") return 1;
  return rollout.mode() == "async" ? rollout.max_staleness() : 0;
}

}  // namespace sluice
