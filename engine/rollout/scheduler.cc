#include "engine/rollout/scheduler.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace sluice::engine {
namespace {

int64_t BlocksFor(int64_t tokens, int64_t block_size) { return (tokens + block_size - 1) / block_size; }

// How many pages become free when requests give theirs back: a shared page with its last holder.
class Releases {
 public:
  explicit Releases(std::span<const int32_t> references) : references_(references) {}

  int64_t Release(std::span<const int32_t> blocks) {
    int64_t freed = 0;
    for (const int32_t block : blocks) freed += ++given_back_[block] == references_[static_cast<size_t>(block)];
    return freed;
  }

 private:
  std::span<const int32_t> references_;
  absl::flat_hash_map<int32_t, int32_t> given_back_;
};

}  // namespace

SchedulerDecision Schedule(const SchedulerLimits& limits, const SchedulerState& state) {
  SchedulerDecision decision;
  int64_t budget = limits.max_batched_tokens;
  int64_t free = state.free_blocks;
  Releases releases(state.references);
  size_t running = state.running.size();  // those behind are preempted

  for (size_t i = 0; i < running && budget > 0; ++i) {
    const RunningRequest& request = state.running[i];
    const int64_t tokens = std::min(request.tokens - request.computed, budget);
    const int64_t wanted =
        BlocksFor(request.computed + tokens, limits.block_size) - static_cast<int64_t>(request.blocks.size());
    while (wanted > free && running > i) {
      --running;  // at last the request itself
      decision.preempted.push_back(running);
      free += releases.Release(state.running[running].blocks);
    }
    if (running == i) break;
    free -= std::max<int64_t>(wanted, 0);
    budget -= tokens;
    decision.running.push_back({i, tokens});
  }
  // Who was just made to wait is first in the queue, and gets pages before others do.
  if (!decision.preempted.empty()) return decision;

  for (size_t i = 0; i < state.waiting.size() && budget > 0; ++i) {
    const WaitingRequest& request = state.waiting[i];
    if (request.waits_for_prefix) continue;
    if (static_cast<int64_t>(running + decision.admitted.size()) >= limits.max_sequences) break;
    // Pages for all it knows and the next token, so that it is not preempted as soon as it begins.
    const int64_t wanted = BlocksFor(request.tokens + 1, limits.block_size) - request.blocks_in_use;
    if (wanted > free) break;
    const int64_t tokens = std::min(request.tokens - request.cached, budget);
    free -= wanted;
    budget -= tokens;
    decision.admitted.push_back({i, tokens});
  }
  return decision;
}

}  // namespace sluice::engine
