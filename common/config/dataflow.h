// The stages of one step, and how they depend on each other: what a recipe of reinforcement learning expands to, and
// what a job of recipe `dataflow` lists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sluice/v1/job.pb.h"

namespace sluice {

// One stage. Its op says what it does (docs/dataflow.md):
//   generate     prompts of the step -> answers with their log-probabilities
//   reward       answers -> scores
//   filter       scores -> answers whose groups teach something, with those to further prompts among them
//   logprob      answers -> log-probabilities under the weights the update starts from
//   ref_logprob  answers -> log-probabilities under the reference model
//   values       answers -> what the critic expects of each token's state
//   advantage    scores, log-probabilities, values -> advantages, and what the critic should have expected
//   update_critic  these -> new weights of the critic
//   update       all of these -> new weights; it ends the step
//   weight_sync  new weights -> the same on the pool that generates, where that is another
struct DataflowStage {
  std::string name;
  std::string op;
  std::string model;                // actor, ref, critic, reward; empty where the op needs none
  std::vector<std::string> inputs;  // names of stages before it
  std::string pool = "all";         // whose ranks run it (pools.h); of weight_sync those of the rollout and rank 0
  bool beside = false;              // other stages of its ranks may run at the same time
};

// Of a step, each after its inputs; empty for recipes that learn from texts that are given. What a recipe expands to,
// or what the job lists. REQUIRES: the job's list is valid (validate_dataflow.h). Pure.
std::vector<DataflowStage> DataflowOf(const v1::JobSpec& spec);

// The job's list, in its order, as it stands: for judging it.
std::vector<DataflowStage> ListedStages(const v1::JobSpec& spec);

// Whether the data flow has a stage of this op.
bool HasStage(const v1::JobSpec& spec, const std::string& op);
// Whether groups of answers that are all equally good are left out of steps.
bool FiltersGroups(const v1::JobSpec& spec);

// The most tokens that the cache of keys and values holds on one rank: rollout.kv_cache_tokens or, where that is 0,
// those of rollout.max_num_seqs answers of full length. On a GPU it may be fewer then (rollout.gpu_memory_utilization);
// on the CPU it is no more than 131,072.
int64_t KvCacheTokens(const v1::JobSpec& spec, bool on_gpu);

// Whether the job compares with a reference model: one more model, without gradients, as the run began with it or of
// reference.path; a teacher is one.
bool NeedsReference(const v1::JobSpec& spec);

// Whether that is another model: of reference.path.
bool ComparesWithAnother(const v1::JobSpec& spec);

// Whether a critic is trained beside the policy.
bool NeedsCritic(const v1::JobSpec& spec);

// The critic's optimizer: critic.optim, and `optim` for what that leaves open.
v1::OptimSpec CriticOptim(const v1::JobSpec& spec);

}  // namespace sluice
