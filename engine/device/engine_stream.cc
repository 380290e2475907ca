#include "engine/device/engine_stream.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"
#include "engine/device/device_memory.h"

namespace sluice::engine {
namespace {

struct DeviceStream {
  kernels::Stream stream;
  std::vector<DeviceMemory> workspaces;  // the last one is in use
};

absl::Mutex mutex;

DeviceStream& StreamOf(kernels::Device device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static std::map<int, DeviceStream>* const streams = new std::map<int, DeviceStream>;  // outlives the graphs
  DeviceStream& found = (*streams)[device.index];
  if (found.stream.handle == nullptr) {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    cudaSetDevice(device.index);
    found.stream = {.device = device,
                    .handle = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index).stream()};
  }
  return found;
}

}  // namespace

kernels::Stream EngineStream(kernels::Device device) {
  if (device.is_cpu()) return {.device = device};
  absl::MutexLock lock(&mutex);
  return StreamOf(device).stream;
}

absl::Status ReserveWorkspace(kernels::Device device, int64_t bytes) {
  if (device.is_cpu()) return absl::OkStatus();
  {
    absl::MutexLock lock(&mutex);
    if (StreamOf(device).stream.workspace_bytes >= bytes) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(DeviceMemory workspace, DeviceMemory::Allocate(bytes, device));
  absl::MutexLock lock(&mutex);
  DeviceStream& found = StreamOf(device);
  found.stream.workspace = workspace.View(0, kernels::DType::kInt32, {1}).data;
  found.stream.workspace_bytes = bytes;
  found.workspaces.push_back(std::move(workspace));
  return absl::OkStatus();
}

absl::Status Synchronize(kernels::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  const cudaError_t error = cudaStreamSynchronize(static_cast<cudaStream_t>(EngineStream(device).handle));
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(Name(device), ": ", cudaGetErrorString(error)));
}

}  // namespace sluice::engine
