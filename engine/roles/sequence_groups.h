// Sequences that must lie in one micro-batch, such as the two answers of a pair, and their way into micro-batches.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/data/batch_plan.h"
#include "engine/data/micro_batch.h"
#include "engine/data/row_encoder.h"
#include "engine/loss/preference_loss.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

struct SequenceGroup {
  std::vector<const EncodedRow*> sequences;  // at least one; not owned
  int64_t sample_id = 0;                     // the row they came from

  int64_t tokens() const;         // of all its sequences
  int64_t scored_tokens() const;  // those that are predicted and learned
  double squared_lengths() const;
};

// Groups in one micro-batch. The sequences of groups[i] follow one another, and those of groups[i + 1] follow them.
struct PackedGroups {
  MicroBatch batch;
  std::vector<int32_t> groups;      // places in the span they were packed from
  std::vector<Sequence> sequences;  // one for each: all its slots
  std::vector<uint8_t> mask;        // [T] 1 where a slot has a label

  TokenBatch tokens() const { return {sequences, static_cast<int64_t>(mask.size()), mask}; }
};

// Which groups go to which rank's micro-batches of `token_slots` slots: batch_plan.h, with groups in place of
// sequences. InvalidArgument: a group that does not fit.
absl::StatusOr<BatchPlan> PlanGroups(absl::Span<const SequenceGroup> groups, int64_t world_size, int64_t token_slots);

// One micro-batch of the plan. REQUIRES: they fit.
PackedGroups PackGroups(absl::Span<const SequenceGroup> groups, absl::Span<const int32_t> chosen, int64_t token_slots);

// As places in packed.sequences, one for each group. REQUIRES: a group is a chosen and a rejected answer, in this
// order.
std::vector<PreferencePair> PairsOf(const PackedGroups& packed);

}  // namespace sluice::engine
