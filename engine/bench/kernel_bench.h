// Every kernel at the sizes of two published models: what `sluice-bench kernels` measures.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "kernels/stream.h"

namespace sluice::engine {

struct KernelBenchOptions {
  kernels::Stream stream;  // REQUIRES: of a CUDA device
  std::string filter;      // only kernels whose name contains it
};

// Prints one line of JSON for each kernel and shape: milliseconds, GB/s and the part of the copy bandwidth measured in
// the same run, or TFLOP/s and the part of the measured matrix product.
absl::Status RunKernelBench(const KernelBenchOptions& options);

}  // namespace sluice::engine
