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

constexpr int kMostTails = 3;

struct TailPackets {
  uint4* to;
  int64_t packets;
  const int32_t* end;  // in elements
};

struct AllTails {
  TailPackets tails[kMostTails];
  int element_bytes;
};

// Sixteen bytes a thread; a row of blocks for each array.
__global__ void __launch_bounds__(256) ClearTails(AllTails all) {
  const TailPackets& tail = all.tails[blockIdx.y];
  const int64_t first = static_cast<int64_t>(*tail.end) * all.element_bytes / 16;
  for (int64_t i = first + blockIdx.x * blockDim.x + threadIdx.x; i < tail.packets;
       i += int64_t{gridDim.x} * blockDim.x) {
    tail.to[i] = uint4{0, 0, 0, 0};
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

absl::Status ZeroTails(std::initializer_list<Tail> tails, Stream stream) {
  AllTails all = {};
  int count = 0;
  for (const Tail& tail : tails) {
    all.tails[count++] = {static_cast<uint4*>(tail.array.data), tail.array.bytes() / 16, tail.end};
    all.element_bytes = static_cast<int>(SizeOf(tail.array.dtype));
  }
  const dim3 grid(static_cast<unsigned>(MultiprocessorCount() / 2), static_cast<unsigned>(count));
  ClearTails<<<grid, 256, 0, HandleOf(stream)>>>(all);
  return LaunchStatus("attention");
}

}  // namespace sluice::kernels::cuda
