// Device time of repeated work, for benchmarks.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "engine/device/engine_stream.h"
#include "kernels/stream.h"

namespace sluice::engine {

// Median seconds of `body` over `repeats` runs, after `warm_up` runs. On CUDA between two events, on the CPU by the
// wall clock. Waits for the device.
inline absl::StatusOr<double> MedianSeconds(kernels::Stream stream, int warm_up, int repeats,
                                            absl::FunctionRef<absl::Status()> body) {
  for (int i = 0; i < warm_up; ++i) RETURN_IF_ERROR(body());
  std::vector<double> seconds;
  cudaEvent_t begin = nullptr, end = nullptr;
  const auto handle = static_cast<cudaStream_t>(stream.handle);
  if (stream.device.is_cuda()) {
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
  }
  for (int i = 0; i < repeats; ++i) {
    const absl::Time start = absl::Now();
    if (stream.device.is_cuda()) cudaEventRecord(begin, handle);
    RETURN_IF_ERROR(body());
    if (stream.device.is_cuda()) {
      float milliseconds = 0;
      cudaEventRecord(end, handle);
      cudaEventSynchronize(end);
      cudaEventElapsedTime(&milliseconds, begin, end);
      seconds.push_back(milliseconds / 1e3);
    } else {
      seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
    }
  }
  if (stream.device.is_cuda()) {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  RETURN_IF_ERROR(Synchronize(stream.device));
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace sluice::engine
