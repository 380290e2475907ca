// The data flow of a job's steps as a pure state machine: from what is done and what runs to what may begin. A part of
// the job's course (job_plan.h).
//
// A stage may begin once its inputs are done. The ranks of a pool run one stage at a time, and beside it one that runs
// beside (DataflowStage::beside); stages of different pools run at once. With the rollout on a pool of its own,
// generation may be ahead of training, and `weight_sync` brings the pool the trained weights, of which a version is the
// number of steps done.
//
// Invariants (tests cite them by number):
//   FLOW-1  Each stage of each step begins once, after its inputs; training stages belong to the step after the last.
//   FLOW-2  No two stages that run at once share a lane: ranks, and whether they run beside.
//   FLOW-3  The weights that answer for step s have at least version s - 1 - ahead. In the modes sync and one_step_off
//           they have exactly that version, or that of the last standstill, whatever stages take how long.
//   FLOW-4  No step after a standstill is begun before it: a run that resumes there does what one did that went on.
//   FLOW-5  Where groups are filtered the answers of a step are all of the same weights, and no batch of prompts is
//           taken for a step before the step before it has all that it takes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "common/config/dataflow.h"
#include "common/config/pools.h"
#include "sluice/v1/engine.pb.h"
#include "sluice/v1/job.pb.h"

namespace sluice::controller {

// What of the spec decides the flow. Constant over a job.
struct FlowPlan {
  struct Stage {
    DataflowStage what;
    std::vector<size_t> inputs;  // places in `stages`
    std::set<size_t> before;     // whose results it reads: these, theirs, and so on up to a filter, which leaves all
    size_t pool = 0;
    int32_t readers = 0;  // ranks of other pools that fetch what it makes
  };
  std::vector<Stage> stages;  // of a step, each after its inputs; the last ends it. Empty: the job has no data flow
  std::vector<Pool> pools;    // the actor's first
  size_t rollout = 0;         // the pool that generates
  int64_t ahead = 0;          // steps that generation may be ahead of training
  bool newest = false;        // generation takes the newest weights there are, not those of a fixed age

  bool syncs_weights() const { return rollout != 0; }
};

FlowPlan MakeFlowPlan(const v1::JobSpec& spec);

// A stage of a step; or the weights of version `step` on their way.
struct FlowItem {
  static constexpr size_t kWeightSync = SIZE_MAX;
  int64_t step = 0;
  size_t stage = 0;  // a place in FlowPlan::stages, or kWeightSync

  bool operator==(const FlowItem&) const = default;
};

struct FlowProgress {
  struct Step {
    std::set<size_t> begun, done;                               // stages
    std::map<size_t, std::vector<v1::BatchReference>> outputs;  // of stages that other pools read
    std::map<size_t, absl::Time> done_at;                       // of stages
    std::map<size_t, std::set<size_t>> brought;                 // to a pool: outputs of stages
  };
  std::map<int64_t, Step> steps;  // under way
  std::vector<FlowItem> running;
  int64_t steps_done = 0;
  int64_t next_to_generate = 1;  // a step
  int64_t rollout_version = 0;   // of the weights on the rollout's pool
  int64_t standstill = 0;        // steps done at the last one
};

// Steps done are `step`, and nothing runs: the beginning, or a checkpoint.
void StandStill(int64_t step, FlowProgress* progress);

// What may begin now, in the order of its urgency. No step after `last` is begun.
std::vector<FlowItem> ReadyItems(const FlowPlan& plan, const FlowProgress& progress, int64_t last);

// The weights of now for the rollout's pool. REQUIRES: nothing runs.
FlowItem SyncNow(const FlowProgress& progress);

// What the engines are asked for. REQUIRES: the item is ready.
v1::DataflowOp RequestOf(const FlowPlan& plan, const FlowProgress& progress, const FlowItem& item);
// The ranks that are asked; empty: all.
std::vector<int32_t> RanksOf(const FlowPlan& plan, const FlowItem& item);

void Begin(const FlowPlan& plan, const FlowItem& item, FlowProgress* progress);
// `outputs`: of all ranks.
void Finish(const FlowPlan& plan, const FlowItem& item, const std::vector<v1::BatchReference>& outputs, absl::Time now,
            FlowProgress* progress);

// Since when the item's inputs are done; `now` where it has none.
absl::Time ReadySince(const FlowPlan& plan, const FlowProgress& progress, const FlowItem& item, absl::Time now);

}  // namespace sluice::controller
