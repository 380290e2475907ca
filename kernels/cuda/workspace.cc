#include "kernels/cuda/workspace.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>

#include "absl/strings/str_cat.h"

namespace sluice::kernels::cuda {
namespace {

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

cudaStream_t HandleOf(Stream stream) {
  if (stream.handle != nullptr) return static_cast<cudaStream_t>(stream.handle);
  return c10::cuda::getCurrentCUDAStream(stream.device.index).stream();
}

absl::StatusOr<Workspace> Workspace::Take(std::string_view kernel, Stream stream, int64_t bytes) {
  Workspace workspace;
  if (bytes <= stream.workspace_bytes) {
    workspace.data_ = std::shared_ptr<void>(stream.workspace, [](void*) {});
    return workspace;
  }
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(HandleOf(stream), &capture);
  if (capture != cudaStreamCaptureStatusNone) {
    return absl::ResourceExhaustedError(absl::StrCat(Text(kernel), ": needs a workspace of ", bytes,
                                                     " bytes, the stream has ", stream.workspace_bytes));
  }
  try {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);  // a no-op but for the first time
    const cudaStream_t handle = HandleOf(stream);
    void* data = c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(static_cast<size_t>(bytes), handle);
    workspace.data_ =
        std::shared_ptr<void>(data, [](void* memory) { c10::cuda::CUDACachingAllocator::raw_delete(memory); });
    return workspace;
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Text(kernel), ": no memory for a workspace of ", bytes, " bytes: ", error.what()));
  }
}

absl::Status LaunchStatus(std::string_view kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(Text(kernel), ": ", cudaGetErrorString(error)));
}

int MultiprocessorCount() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count > 0 ? count : 1;
}

}  // namespace sluice::kernels::cuda
