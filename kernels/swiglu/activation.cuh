// silu(gate) * up for one value: one text, so that all kernels give the same bits.
#pragma once

#include <cuda_bf16.h>

namespace sluice::kernels::cuda {

// The accuracy that the storage type can show.
template <typename T>
__device__ __forceinline__ float Sigmoid(float x) {
  if constexpr (sizeof(T) == 2) return __fdividef(1.0f, 1.0f + __expf(-x));
  return 1.0f / (1.0f + expf(-x));
}

// Backward gives the same bits as forward.
__device__ __forceinline__ float Activation(float gate, float sigmoid, float up) {
  return __fmul_rn(__fmul_rn(gate, sigmoid), up);
}

}  // namespace sluice::kernels::cuda
