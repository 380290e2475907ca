// The last stage of sums over tokens: adds the column sums of per-block partial results to a gradient.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace sluice::kernels::cuda {

struct ColumnSums {
  const float* partials = nullptr;  // [parts, columns]
  int parts = 0;
  int columns = 0;
  float* out = nullptr;  // columns 0..split-1 are added here
  int split = 0;
  float* rest = nullptr;  // columns split.. are added here
};

// A warp's lanes are neighbouring columns; warp g adds rows g, g + kWarps, ... and the first warp adds the warps' sums
// in their order. Partial results are small (a row per block of the kernel before) and still in L2.
template <int kWarps>
__global__ void __launch_bounds__(32 * kWarps) ColumnSumsKernel(ColumnSums args) {
  __shared__ float sums[kWarps][32];
  const int column = blockIdx.x * 32 + threadIdx.x;
  float sum = 0.0f;
  if (column < args.columns) {
#pragma unroll 8
    for (int part = threadIdx.y; part < args.parts; part += kWarps) {
      sum += args.partials[static_cast<int64_t>(part) * args.columns + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= args.columns) return;
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) total += sums[warp][threadIdx.x];
  float* to = column < args.split ? args.out + column : args.rest + (column - args.split);
  *to += total;
}

inline void AddColumnSums(const ColumnSums& args, cudaStream_t stream) {
  constexpr int kWarps = 16;
  ColumnSumsKernel<kWarps><<<(args.columns + 31) / 32, dim3(32, kWarps), 0, stream>>>(args);
}

}  // namespace sluice::kernels::cuda
