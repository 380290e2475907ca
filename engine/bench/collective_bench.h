// What NCCL gives between the GPUs of a host: what `sluice-bench collectives` measures.
#pragma once

#include "absl/status/status.h"
#include "engine/comm/communicator.h"
#include "kernels/stream.h"

namespace sluice::engine {

// Prints a line of JSON for each size of an all-reduce, on rank 0: microseconds, and GB/s of the bus, which is the
// bytes that each GPU sends, 2 (n - 1) / n of the values, a second. Every rank calls it.
absl::Status RunCollectiveBench(kernels::Stream stream, Communicator& communicator);

}  // namespace sluice::engine
