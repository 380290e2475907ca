// The order in which a device runs kernels. Work on one stream runs in the order it was issued.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace sluice::kernels {

// On the CPU a kernel has finished when its call returns and the stream carries nothing. On CUDA `handle` is a
// cudaStream_t, not owned, that outlives the work issued on it; null means LibTorch's current stream of the device.
//
// `workspace` is memory on the device for what a kernel needs only while it runs. One kernel at a time has it, because
// a stream runs them one after the other; so one workspace serves all kernels of a stream. Without one, or where it is
// too small, a kernel takes memory from LibTorch's allocator for the length of its call, which cannot be captured into
// a CUDA graph: such a call returns ResourceExhausted and says how much was needed.
struct Stream {
  Device device;
  void* handle = nullptr;
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

inline Stream DefaultStream(Device device) { return {.device = device}; }

}  // namespace sluice::kernels
