// Which rows a step trains on. Pure functions of (rows, batch size, shuffle, seed, step): the only cursor is the number
// of steps done, so that a run resumes at any step, also at an epoch's border, by computing what comes next.
//
// An epoch is a permutation of all rows cut into batches; its last batch is short where the rows do not divide. Steps
// and epochs count from 0.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::engine {

// A permutation of 0..rows-1 that needs no table: a Feistel network over the next power of four (64 at least, where
// fewer bits would leave too few permutations to choose from), keyed by (seed, epoch), walked until it falls below
// `rows` (Black & Rogaway 2002, cycle walking; at most 4 tries on average for more than 16 rows).
class EpochPermutation {
 public:
  // REQUIRES: rows >= 1, epoch >= 0.
  EpochPermutation(int64_t rows, uint64_t seed, int64_t epoch);

  // The row at a place of the epoch's order. REQUIRES: 0 <= place < rows.
  int64_t operator()(int64_t place) const;

 private:
  static constexpr int kRounds = 12;

  uint64_t Encrypt(uint64_t value) const;

  int64_t rows_;
  int half_bits_;
  uint64_t round_keys_[kRounds];
};

struct SamplerOptions {
  int64_t rows = 0;        // >= 1
  int64_t batch_size = 1;  // rows of a step over all ranks, >= 1
  bool shuffle = true;     // false: the order of the files in each epoch
  uint64_t seed = 0;
};

struct StepRows {
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  bool ends_epoch = false;
  std::vector<int64_t> rows;  // batch_size of them, fewer in an epoch's last step
};

int64_t StepsPerEpoch(const SamplerOptions& options);

// REQUIRES: step >= 0.
StepRows RowsOfStep(const SamplerOptions& options, int64_t step);

}  // namespace sluice::engine
