// Memory and stream of one CUDA kernel call.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/stream.h"

namespace sluice::kernels::cuda {

// The cudaStream_t of `stream`. REQUIRES: a CUDA device.
cudaStream_t HandleOf(Stream stream);

// `bytes` of device memory for one kernel call, aligned to 256 bytes: the stream's workspace where it is large enough.
// Keep the object until the kernels that use the memory are launched.
class Workspace {
 public:
  // ResourceExhausted where neither has the memory; `kernel` opens the message.
  static absl::StatusOr<Workspace> Take(std::string_view kernel, Stream stream, int64_t bytes);

  void* data() const { return data_.get(); }
  template <typename T>
  T* at(int64_t byte_offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(data_.get()) + byte_offset);
  }

 private:
  std::shared_ptr<void> data_;
};

// The size of the next part of a workspace: `bytes` rounded up to 256.
constexpr int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// The status of the launches since the last call. Internal, with CUDA's message, if one failed.
absl::Status LaunchStatus(std::string_view kernel);

// Streaming multiprocessors of the current device; at least 1.
int MultiprocessorCount();

}  // namespace sluice::kernels::cuda
