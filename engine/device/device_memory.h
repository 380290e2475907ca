// Blocks of memory on a device, and copies between devices and element types. LibTorch's allocators stand behind them,
// so that the device's memory is accounted in one place; no LibTorch type shows.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

// Every block starts at, and every tensor carved from one should start at, a multiple of this many bytes.
inline constexpr int64_t kMemoryAlignment = 256;

// Bytes of the GPU that an allocation can have: what the driver has free and what LibTorch's allocator keeps for later.
// Internal: CUDA does not tell. REQUIRES: device is a GPU.
absl::StatusOr<int64_t> FreeDeviceBytes(kernels::Device device);

// A block filled with zeros at allocation. Copies share the block (they are handles); the last one frees it.
class DeviceMemory {
 public:
  DeviceMemory() = default;

  // ResourceExhausted, naming the bytes and the device, where there is no memory.
  static absl::StatusOr<DeviceMemory> Allocate(int64_t bytes, kernels::Device device);

  int64_t bytes() const { return bytes_; }
  kernels::Device device() const { return device_; }

  // A copy on `device`. ResourceExhausted where there is no memory.
  absl::StatusOr<DeviceMemory> CopiedTo(kernels::Device device) const;

  // The tensor at `byte_offset`. REQUIRES: it lies within the block.
  kernels::TensorView View(int64_t byte_offset, kernels::DType dtype, kernels::Shape shape) const {
    return {static_cast<char*>(memory_.get()) + byte_offset, dtype, shape, device_};
  }

 private:
  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0;
  kernels::Device device_;
};

// Hands out consecutive aligned tensors of one block. A first pass without a block finds the size: run the same
// requests over Carver() and then over Carver(block).
class Carver {
 public:
  Carver() = default;
  explicit Carver(const DeviceMemory& memory) : memory_(&memory) {}

  kernels::TensorView Take(kernels::DType dtype, kernels::Shape shape) {
    const int64_t offset = bytes_;
    bytes_ += (shape.elements() * kernels::SizeOf(dtype) + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
    return memory_ == nullptr ? kernels::TensorView() : memory_->View(offset, dtype, shape);
  }

  int64_t bytes() const { return bytes_; }

 private:
  const DeviceMemory* memory_ = nullptr;
  int64_t bytes_ = 0;
};

// to = from, element by element in row-major order, between any devices and any types; waits until it is done.
// Narrowing rounds to nearest even. InvalidArgument for unequal element counts or views that are not dense.
absl::Status CopyTensor(kernels::ConstTensorView from, kernels::TensorView to);

}  // namespace sluice::engine
