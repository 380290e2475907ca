#include "engine/device/readback.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace sluice::engine {

absl::StatusOr<std::unique_ptr<Readback>> Readback::Create(size_t bytes, kernels::Stream stream) {
  std::unique_ptr<Readback> readback(new Readback(stream));
  if (stream.device.is_cpu()) {
    readback->block_ = new std::byte[bytes];
    return readback;
  }
  void* block = nullptr;
  cudaEvent_t event = nullptr;
  if (cudaHostAlloc(&block, bytes, cudaHostAllocDefault) != cudaSuccess ||
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) {
    cudaFreeHost(block);
    return absl::ResourceExhaustedError(absl::StrCat("no page-locked memory for ", bytes, " bytes of results"));
  }
  readback->block_ = static_cast<std::byte*>(block);
  readback->copied_ = event;
  return readback;
}

Readback::~Readback() {
  if (stream_.device.is_cpu()) {
    delete[] block_;
    return;
  }
  if (copied_ != nullptr) {
    cudaEventSynchronize(static_cast<cudaEvent_t>(copied_));
    cudaEventDestroy(static_cast<cudaEvent_t>(copied_));
  }
  cudaFreeHost(block_);
}

absl::Status Readback::Issue(std::initializer_list<kernels::ConstTensorView> values) {
  const auto handle = static_cast<cudaStream_t>(stream_.handle);
  size_t offset = 0;
  for (const kernels::ConstTensorView& value : values) {
    const auto bytes = static_cast<size_t>(value.bytes());
    if (stream_.device.is_cpu()) {
      std::memcpy(block_ + offset, value.data, bytes);
    } else {
      cudaMemcpyAsync(block_ + offset, value.data, bytes, cudaMemcpyDeviceToHost, handle);
    }
    offset += (bytes + 7) / 8 * 8;
  }
  if (stream_.device.is_cpu()) return absl::OkStatus();
  const cudaError_t error = cudaEventRecord(static_cast<cudaEvent_t>(copied_), handle);
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("results of a step: ", cudaGetErrorString(error)));
}

absl::Status Readback::Wait() {
  if (stream_.device.is_cpu()) return absl::OkStatus();
  const cudaError_t error = cudaEventSynchronize(static_cast<cudaEvent_t>(copied_));
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a step on ", Name(stream_.device), ": ", cudaGetErrorString(error)));
}

}  // namespace sluice::engine
