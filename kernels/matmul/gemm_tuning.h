// Which of cuBLASLt's algorithms the matrix products of this process use on CUDA.
//
// cuBLASLt proposes algorithms for a product and guesses an order. Without tuning the first is taken. With tuning the
// first use of a shape times the proposals on the operands at hand, after enough other work that the GPU has reached
// its power limit (short bursts rank differently), and keeps the fastest. The choice decides the order of the sums, so
// it decides bits: a file keeps it, and a run that must repeat another's bits needs the same file or no tuning.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sluice::kernels {

struct GemmTuning {
  bool enabled = false;
  // Choices are read from here and added here; the folder must exist. Empty: they live as long as the process. A file
  // of another GPU or another cuBLASLt is not used and is replaced. Safe with several processes: the file is replaced
  // whole.
  std::string cache_file;
};

// Sets it for all products that follow, and forgets the plans made so far. Thread-safe.
// InvalidArgument, naming the line, for a cache file that is damaged: delete it to tune anew.
absl::Status SetGemmTuning(const GemmTuning& tuning);

struct GemmTuningStats {
  int64_t plans = 0;          // shapes in use
  int64_t tuned = 0;          // of them timed by this process
  int64_t from_file = 0;      // of them read from the cache file
  double tuning_seconds = 0;  // spent timing
};
GemmTuningStats GetGemmTuningStats();

}  // namespace sluice::kernels
