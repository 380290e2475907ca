#include "engine/model/device_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "kernels/aten_view.h"

namespace sluice::engine {

absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(int64_t bytes, kernels::Device device) {
  const c10::Device where(device.is_cpu() ? c10::DeviceType::CPU : c10::DeviceType::CUDA,
                          device.is_cpu() ? c10::DeviceIndex{-1} : static_cast<c10::DeviceIndex>(device.index));
  try {
    at::Tensor tensor = at::zeros({bytes}, at::TensorOptions().dtype(at::kByte).device(where));
    DeviceMemory memory;
    void* data = tensor.data_ptr();
    memory.memory_ = std::shared_ptr<void>(data, [tensor](void*) {});
    memory.bytes_ = bytes;
    memory.device_ = device;
    return memory;
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", bytes, " bytes on ", Name(device), ": ", error.what()));
  }
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
  try {
    kernels::AsTensor(to.Reshaped({to.elements()}))
        .copy_(kernels::AsTensor(from.Reshaped({from.elements()})), /*non_blocking=*/false);
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("copy from ", Name(from.device), " to ", Name(to.device), ": ", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
