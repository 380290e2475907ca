// What this machine gives at best, measured in the same run as the figures that are compared with it.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/stream.h"

namespace sluice::engine {

struct Ceiling {
  double copy_bytes_per_second = 0;  // read and written, device to device, 2 GiB
  double gemm_flops_per_second = 0;  // bf16 product of random 8192 x 8192 matrices, after half a second of them
};

// REQUIRES: a CUDA stream.
absl::StatusOr<Ceiling> MeasureCeiling(kernels::Stream stream);

}  // namespace sluice::engine
