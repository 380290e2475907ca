// How the rows of one step are spread over data-parallel ranks and packed into micro-batches. Pure: every rank computes
// the whole plan and takes its part, so that all agree on the number of micro-batches without a message.
//
// Invariants (tests cite them by number):
//   PLAN-1  Every sequence is in exactly one micro-batch of one rank.
//   PLAN-2  No micro-batch holds more than max_tokens tokens or max_sequences sequences.
//   PLAN-3  All ranks have the same number of micro-batches, at least one; those that a rank lacks are empty.
//   PLAN-4  The plan depends on the lengths, in their order, and the options alone.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/micro_batch.h"

namespace sluice::engine {

struct PlanOptions {
  int64_t world_size = 1;     // data-parallel ranks
  int64_t max_tokens = 0;     // token slots of a micro-batch (T of micro_batch.h)
  int64_t max_sequences = 0;  // sequences in one micro-batch; 0: no bound but max_tokens
};

struct BatchPlan {
  // [rank][micro-batch] → places in `lengths`, ascending.
  std::vector<std::vector<std::vector<int32_t>>> ranks;
  int64_t tokens = 0;  // of all sequences

  int64_t micro_batches_per_rank() const { return static_cast<int64_t>(ranks[0].size()); }
  // Tokens of each rank. `lengths`: those that were planned.
  std::vector<int64_t> TokensOfRanks(const std::vector<int64_t>& lengths) const;
  // Tokens over token slots of all ranks, in (0, 1]; what is missing to 1 is padding.
  double FillRatio(int64_t max_tokens) const;
};

// Spreads by longest processing time first (Graham 1969: at most 4/3 of the best heaviest rank), each sequence to the
// rank with the fewest tokens so far; then packs each rank's sequences first-fit-decreasing (at most 11/9 of the fewest
// micro-batches, Johnson 1973). Ties go to the lower place and the lower rank.
// kInvalidArgument: a sequence longer than max_tokens, or a length below 1.
absl::StatusOr<BatchPlan> PlanBatch(const std::vector<int64_t>& lengths, const PlanOptions& options);

// A tokenised sequence in memory that someone else owns.
struct TokenSpan {
  const int32_t* ids = nullptr;   // [tokens]
  const uint8_t* mask = nullptr;  // [tokens] 1 where the token itself is to be learned
  int64_t tokens = 0;
  int64_t sample_id = 0;
};

// Lays the sequences one after another into `token_slots` slots. The label of a slot is the next token of the same
// sequence where the mask of that next token is 1; a sequence's last slot predicts nothing, and its first token, marked
// or not, is predicted by nothing. No sequences give an empty micro-batch: cu_seqlens {0}, every slot tail. REQUIRES:
// the sequences fit.
MicroBatch PackMicroBatch(const std::vector<TokenSpan>& sequences, int64_t token_slots);

}  // namespace sluice::engine
