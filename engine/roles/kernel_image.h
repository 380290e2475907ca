// Whether this program holds machine code for a GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace sluice::engine {

// Asks the current GPU for a kernel that is compiled as all kernels of this program are. cudaSuccess: it has code for
// the GPU. cudaErrorNoKernelImageForDevice or cudaErrorInvalidDeviceFunction: it has none. All else: the GPU cannot be
// used now. Leaves no error behind in the runtime.
cudaError_t FindKernelImage();

}  // namespace sluice::engine
