// The order in which a device runs kernels. Work on one stream runs in the order it was issued.
#pragma once

#include "kernels/device.h"

namespace sluice::kernels {

// On the CPU a kernel has finished when its call returns and the stream carries nothing. On CUDA `handle` is a
// cudaStream_t, not owned, that outlives the work issued on it; null means LibTorch's current stream of the device.
struct Stream {
  Device device;
  void* handle = nullptr;
};

inline Stream DefaultStream(Device device) { return {device, nullptr}; }

}  // namespace sluice::kernels
