#include <algorithm>

#include "kernels/attention/backends.h"
#include "kernels/cuda/workspace.h"

namespace sluice::kernels::cuda {
namespace {

__global__ void Bounds(const int32_t* cu_seqlens, int room, int q_row, int kv_row, int32_t* bounds) {
  const int entries = room + 1;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < entries; i += gridDim.x * blockDim.x) {
    const int32_t start = cu_seqlens[i];
    bounds[i] = i < room ? cu_seqlens[i + 1] - start : 0;
    bounds[entries + i] = start * q_row;
    bounds[2 * entries + i] = start * kv_row;
    bounds[3 * entries + i] = start;
  }
}

// Sixteen bytes a thread; blocks before the tail leave at once.
__global__ void __launch_bounds__(256) ClearTail(uint4* to, int64_t packets, const int32_t* end, int element_bytes) {
  const int64_t first = static_cast<int64_t>(*end) * element_bytes / 16;
  for (int64_t i = first + blockIdx.x * blockDim.x + threadIdx.x; i < packets; i += int64_t{gridDim.x} * blockDim.x) {
    to[i] = uint4{0, 0, 0, 0};
  }
}

}  // namespace

absl::Status Run(const SequenceBounds& args, Stream stream) {
  const int room = static_cast<int>(args.cu_seqlens.dim(0) - 1);
  const int blocks = std::min((room + 256) / 256, 64);
  Bounds<<<blocks, 256, 0, HandleOf(stream)>>>(
      args.cu_seqlens.as<int32_t>(), room, static_cast<int>(args.q_heads * args.head_dim),
      static_cast<int>(args.kv_heads * args.head_dim), args.bounds.as<int32_t>());
  return LaunchStatus("sequence_bounds");
}

absl::Status ZeroTail(TensorView to, const int32_t* starts, int64_t sequences, Stream stream) {
  ClearTail<<<MultiprocessorCount(), 256, 0, HandleOf(stream)>>>(
      static_cast<uint4*>(to.data), to.bytes() / 16, starts + sequences, static_cast<int>(SizeOf(to.dtype)));
  return LaunchStatus("attention");
}

}  // namespace sluice::kernels::cuda
