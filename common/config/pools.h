// Pools: which ranks of a job host which models. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sluice/v1/job.pb.h"

namespace sluice {

// Ranks first_rank to first_rank + ranks - 1 host the same models, each a part of the work: a data-parallel group.
struct Pool {
  std::string name;
  int64_t first_rank = 0;
  int64_t ranks = 1;
  bool actor = true;      // the policy that is trained, and the critic
  bool rollout = true;    // answers, and scores them
  bool reference = true;  // the reference model, where there is one

  bool Has(int64_t rank) const { return rank >= first_rank && rank < first_rank + ranks; }
};

// The pools of a job, the actor's first: its first rank is rank 0, which writes what is written once. Without `pools`
// in the specification: one, named `all`, of the whole world. REQUIRES: the specification is valid.
std::vector<Pool> PoolsOf(const v1::JobSpec& spec);

// Of these. REQUIRES: some pool has the role, or the rank.
const Pool& ActorPool(const std::vector<Pool>& pools);
const Pool& RolloutPool(const std::vector<Pool>& pools);
const Pool& ReferencePool(const std::vector<Pool>& pools);
const Pool& PoolOfRank(const std::vector<Pool>& pools, int64_t rank);

// Whether answers are generated on other ranks than those that train.
bool RolloutIsSeparate(const v1::JobSpec& spec);

// How many steps the weights that answer may be older than those that the answers train: 0 in rollout.mode sync.
int64_t MostStaleness(const v1::RolloutSpec& rollout);

}  // namespace sluice
