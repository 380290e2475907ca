// A tokenised data set and its micro-batches.
//
//   ASSIGN_OR_RETURN(auto train, Dataset::Open(options, encoder, PosixFileSystem()));
//   for (int64_t step = steps_done; step < total_steps; ++step) {
//     ASSIGN_OR_RETURN(StepBatches batches, train->MicroBatchesForStep(step, rank, world_size));
//     ...  // every rank gets equally many micro-batches; divide by batches.scored_tokens
//   }
//
// Validation: open with shuffle = false and take steps 0 .. steps_per_epoch() - 1: every row once, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "engine/data/batch_plan.h"
#include "engine/data/formats.h"
#include "engine/data/micro_batch.h"
#include "engine/data/row_encoder.h"
#include "engine/data/sampler.h"
#include "engine/data/token_cache.h"
#include "engine/data/truncation.h"

namespace sluice::engine {

struct DatasetOptions {
  std::vector<std::string> files;              // paths and globs
  std::string files_key = "data.train_files";  // the configuration key they come from, for messages
  FormatOptions format;
  int64_t max_length = 1024;  // tokens of a row
  Truncation truncation = Truncation::kError;
  int64_t max_rows = -1;   // the first so many rows; -1: all
  int threads = 1;         // that tokenise
  std::string cache_dir;   // see ResolveCacheDir
  int64_t batch_size = 1;  // rows of a step over all ranks
  bool shuffle = true;
  uint64_t seed = 0;
  int64_t max_tokens_per_micro_batch = 8192;                  // token slots T
  int64_t max_sequences_per_micro_batch = 0;                  // 0: no bound
  std::function<void(int64_t done, int64_t total)> progress;  // see TokenCacheOptions
};

// One step on one rank.
struct StepBatches {
  std::vector<MicroBatch> micro_batches;  // this rank's, at least one; some may be empty
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  bool ends_epoch = false;
  // Of the step over all ranks, the same on each:
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t scored_tokens = 0;                             // what the step's loss is divided by; at least 1
  double fill_ratio = 0;                                 // tokens over token slots
  int64_t fewest_rank_tokens = 0, most_rank_tokens = 0;  // of the lightest and the heaviest rank
};

// Immutable after Open; threads may share it.
class Dataset {
 public:
  // Reads, tokenises (or finds in the cache) and counts. Errors begin with options.files_key and name the file and row.
  // kInvalidArgument: no rows, no row with a token to score, a row that fits no micro-batch, a malformed row, a value
  // of the options out of range, a system prompt or tools without a chat template to put them in. `encoder` is used
  // during the call only; `file_system` must outlive the data set.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(const DatasetOptions& options, const RowEncoder& encoder,
                                                       FileSystem& file_system);

  int64_t rows() const { return tokens_->rows(); }  // those kept
  TokenSpan row(int64_t index) const { return tokens_->row(index); }
  const TokenStats& stats() const { return tokens_->stats(); }
  const TokenCache& cache() const { return *tokens_; }
  std::string_view format() const { return format_; }  // the one that `auto` chose

  int64_t steps_per_epoch() const { return StepsPerEpoch(sampler_); }

  // A pure function of its arguments and the data set. `step` counts from 0 over the whole run.
  // kInvalidArgument: step < 0 or rank outside 0..world_size-1.
  absl::StatusOr<StepBatches> MicroBatchesForStep(int64_t step, int64_t rank, int64_t world_size) const;

 private:
  Dataset() = default;
  static absl::StatusOr<std::unique_ptr<Dataset>> OpenUnnamed(const DatasetOptions& options, const RowEncoder& encoder,
                                                              FileSystem& file_system);

  std::unique_ptr<TokenCache> tokens_;
  std::string format_;
  SamplerOptions sampler_;
  int64_t max_tokens_ = 0;
  int64_t max_sequences_ = 0;
};

}  // namespace sluice::engine
