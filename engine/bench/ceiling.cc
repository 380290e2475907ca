#include "engine/bench/ceiling.h"

#include <cuda_runtime_api.h>

#include "common/status_macros.h"
#include "engine/bench/gpu_timer.h"
#include "engine/bench/random_tensor.h"
#include "engine/device/device_memory.h"
#include "kernels/matmul/matmul.h"

namespace sluice::engine {

absl::StatusOr<Ceiling> MeasureCeiling(kernels::Stream stream) {
  Ceiling ceiling;
  {
    constexpr int64_t kBytes = int64_t{1} << 30;
    ASSIGN_OR_RETURN(const DeviceMemory memory, DeviceMemory::Allocate(2 * kBytes, stream.device));
    char* data = memory.View(0, kernels::DType::kInt32, {1}).as<char>();
    ASSIGN_OR_RETURN(const double seconds, MedianSeconds(stream, 3, 20, [&] {
                       cudaMemcpyAsync(data + kBytes, data, kBytes, cudaMemcpyDeviceToDevice,
                                       static_cast<cudaStream_t>(stream.handle));
                       return absl::OkStatus();
                     }));
    ceiling.copy_bytes_per_second = 2.0 * kBytes / seconds;
  }
  constexpr int64_t kSize = 8192;
  ASSIGN_OR_RETURN(const RandomTensor a, RandomTensor::Create(kernels::DType::kBFloat16, {kSize, kSize}, stream, 1));
  ASSIGN_OR_RETURN(const RandomTensor b, RandomTensor::Create(kernels::DType::kBFloat16, {kSize, kSize}, stream, 2));
  ASSIGN_OR_RETURN(const RandomTensor c, RandomTensor::Create(kernels::DType::kBFloat16, {kSize, kSize}, stream, 3));
  const auto product = [&] {
    return kernels::Run(kernels::MatMul{.a = a, .b = b, .transpose_b = true, .c = c}, stream);
  };
  ASSIGN_OR_RETURN(const double seconds, MedianSeconds(stream, 350, 50, product));
  ceiling.gemm_flops_per_second = 2.0 * kSize * kSize * kSize / seconds;
  return ceiling;
}

}  // namespace sluice::engine
