// Decides which tokens of which requests the next forward pass computes. Pure: state in, decisions out.
//
// Continuous batching (Yu et al. 2022, Orca): requests join and leave between passes. A prompt that does not fit into
// what is left of a pass is computed in chunks (Agrawal et al. 2023, Sarathi). When pages run out, the request that was
// admitted last gives its pages back and is computed again later.
//
// Invariants (tests cite them by number):
//   ROLLOUT-1  A pass computes at most max_batched_tokens tokens of at most max_sequences requests.
//   ROLLOUT-2  No decision needs more pages than are free after its preemptions.
//   ROLLOUT-3  Requests are admitted in the order of the queue; one that must wait for pages lets nobody pass.
//   ROLLOUT-4  Only requests admitted later are preempted for one, the last of them first.
//   ROLLOUT-5  While there is work, every pass computes at least one token or preempts, and the request admitted first
//   is
//              never preempted for another: if the cache holds the longest request with all it will get, all end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::engine {

struct SchedulerLimits {
  int64_t max_batched_tokens = 0;  // at least 1
  int64_t max_sequences = 0;       // at least 1: admitted at once
  int64_t block_size = 0;
};

// A request that has pages.
struct RunningRequest {
  int64_t tokens = 0;               // known: prompt and what was generated
  int64_t computed = 0;             // of those, in the cache; less than `tokens`
  std::span<const int32_t> blocks;  // its pages
};

// A request in the queue.
struct WaitingRequest {
  int64_t tokens = 0;
  int64_t cached = 0;             // tokens of its beginning that pages hold already; less than `tokens`
  int64_t blocks_in_use = 0;      // of those pages, those that others refer to: they cost nothing
  bool waits_for_prefix = false;  // another request computes its beginning just now: it is passed over, not waited for
};

struct SchedulerState {
  std::vector<RunningRequest> running;  // in the order of their admission
  std::vector<WaitingRequest>
      waiting;  // in the order of the queue; those behind the last that may be admitted need not be there
  int64_t free_blocks = 0;
  std::span<const int32_t> references;  // of each page
};

struct ScheduledChunk {
  size_t request = 0;  // index into running, or waiting
  int64_t tokens = 0;  // to compute, after those computed or cached; at least 1
};

struct SchedulerDecision {
  std::vector<size_t> preempted;         // indices into running, last admitted first
  std::vector<ScheduledChunk> running;   // ascending
  std::vector<ScheduledChunk> admitted;  // ascending
};

SchedulerDecision Schedule(const SchedulerLimits& limits, const SchedulerState& state);

}  // namespace sluice::engine
