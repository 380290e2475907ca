#include "engine/device/device_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/device/engine_stream.h"
#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"

namespace sluice::engine {

absl::StatusOr<int64_t> FreeDeviceBytes(kernels::Device device) {
  EngineStream(device);  // makes it the current one
  size_t free_bytes = 0, total_bytes = 0;
  const cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (error != cudaSuccess) {
    return absl::InternalError(absl::StrCat("the free memory of the GPU: ", cudaGetErrorString(error)));
  }
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device.index));
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<int64_t>(free_bytes) + stats.reserved_bytes[kAll].current - stats.allocated_bytes[kAll].current;
}

absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(int64_t bytes, kernels::Device device) {
  const c10::Device where(device.is_cpu() ? c10::DeviceType::CPU : c10::DeviceType::CUDA,
                          device.is_cpu() ? c10::DeviceIndex{-1} : static_cast<c10::DeviceIndex>(device.index));
  if (device.is_cuda()) EngineStream(device);  // the device is made ready before its allocator is asked
  try {
    at::Tensor tensor = at::zeros({bytes}, at::TensorOptions().dtype(at::kByte).device(where));
    // The allocator zeroed it on a stream of its own, which the engine's does not wait for.
    if (device.is_cuda()) cudaDeviceSynchronize();
    DeviceMemory memory;
    void* data = tensor.data_ptr();
    memory.memory_ = std::shared_ptr<void>(data, [tensor, device](void*) {
      // Work that uses the memory may still be under way, and the allocator may give it away at once.
      (void)Synchronize(device);
    });
    memory.bytes_ = bytes;
    memory.device_ = device;
    return memory;
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", bytes, " bytes on ", Name(device), ": ", error.what()));
  }
}

absl::StatusOr<DeviceMemory> DeviceMemory::CopiedTo(kernels::Device device) const {
  ASSIGN_OR_RETURN(DeviceMemory copy, Allocate(bytes_, device));
  constexpr kernels::DType kType = kernels::DType::kInt16;  // every block is a whole number of them
  const kernels::Shape shape = {bytes_ / kernels::SizeOf(kType)};
  RETURN_IF_ERROR(CopyTensor(View(0, kType, shape), copy.View(0, kType, shape)));
  return copy;
}

absl::Status CopyTensor(kernels::ConstTensorView from, kernels::TensorView to) {
  if (from.elements() != to.elements()) {
    return absl::InvalidArgumentError(absl::StrCat("copy of ", from.elements(), " elements to ", to.elements()));
  }
  if (!from.dense() || !to.dense()) return absl::InvalidArgumentError("copy: both tensors must be dense");
  if (from.elements() == 0) return absl::OkStatus();
  if (from.device.is_cpu() && to.device.is_cpu() && from.dtype == to.dtype) {
    std::memmove(to.data, from.data, static_cast<size_t>(from.bytes()));
    return absl::OkStatus();
  }
  const kernels::Device device = from.device.is_cuda() ? from.device : to.device;
  RETURN_IF_ERROR(kernels::CallAten("copy", EngineStream(device), [&] {
    kernels::AsTensor(to.Reshaped({to.elements()}))
        .copy_(kernels::AsTensor(from.Reshaped({from.elements()})), /*non_blocking=*/false);
  }));
  return Synchronize(device);
}

}  // namespace sluice::engine
