// Sums and maxima over a warp or a block, in an order that is fixed by the thread's number.
#pragma once

namespace sluice::kernels::cuda {

inline constexpr unsigned kFullWarp = 0xFFFFFFFFu;

// Every lane gets the sum over the warp.
template <typename T>
__device__ __forceinline__ T WarpSum(T value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kFullWarp, value, offset);
  return value;
}

__device__ __forceinline__ float WarpMax(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, offset));
  return value;
}

// Every thread gets the sum over the block. `shared` has room for 32 values and may be used again after the call.
// REQUIRES: all threads of the block call it; blockDim.x is a multiple of 32.
template <typename T>
__device__ __forceinline__ T BlockSum(T value, T* shared) {
  value = WarpSum(value);
  const int warps = blockDim.x / 32;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  T sum = threadIdx.x % 32 < warps ? shared[threadIdx.x % 32] : T{};
  sum = WarpSum(sum);
  __syncthreads();
  return sum;
}

}  // namespace sluice::kernels::cuda
