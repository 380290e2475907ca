#include <algorithm>

#include "common/status_macros.h"
#include "kernels/bias/backends.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/visit_dtype.h"

// dy is read once: 16 lanes of a block have 16 neighbouring packets of a row, its 16 groups of lanes have every 16th
// row of the block's share. The groups' sums are added in shared memory, the shares' by the kernel in column_sums.cuh.

namespace sluice::kernels::cuda {
namespace {

constexpr int kLanes = 16;   // along the columns: 256 bytes of a row
constexpr int kGroups = 16;  // along the rows
constexpr int kUnroll = 4;   // rows of a group on their way at a time
constexpr int kBlocksPerProcessor = 8;
constexpr int64_t kLeastRowsOfBlock = 4 * kGroups;  // fewer are not worth a row of partial sums

template <typename T, int kWidth>
__global__ void __launch_bounds__(kLanes* kGroups)
    PartialSumsKernel(const T* dy, int64_t row_stride, int64_t rows, int64_t rows_of_block, int columns,
                      float* partials) {
  constexpr int kColumns = kLanes * kWidth;
  alignas(16) __shared__ float shared[kGroups][kColumns];
  const int lane = threadIdx.x % kLanes;
  const int group = threadIdx.x / kLanes;
  const int column = blockIdx.x * kColumns + lane * kWidth;
  const int64_t begin = blockIdx.y * rows_of_block;
  const int64_t end = min(begin + rows_of_block, rows);
  Values<kWidth> sums = {};
  if (column < columns) {
    const T* at = dy + column;
    for (int64_t base = begin + group; base < end; base += kUnroll * kGroups) {
      Raw<T, kWidth> raw[kUnroll];
#pragma unroll
      for (int k = 0; k < kUnroll; ++k) {
        const int64_t row = base + k * kGroups;
        raw[k] = row < end ? LoadRaw<T, kWidth>(at + row * row_stride) : Raw<T, kWidth>{};
      }
#pragma unroll
      for (int k = 0; k < kUnroll; ++k) {
        const Values<kWidth> values = Unpack<T, kWidth>(raw[k]);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sums.v[i] += values.v[i];
      }
    }
  }
  StoreFloats<kWidth>(&shared[group][lane * kWidth], sums);
  __syncthreads();
  for (int i = threadIdx.x; i < kColumns; i += kLanes * kGroups) {
    const int to = blockIdx.x * kColumns + i;
    if (to >= columns) continue;
    float sum = 0.0f;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) sum += shared[g][i];
    partials[static_cast<int64_t>(blockIdx.y) * columns + to] = sum;
  }
}

}  // namespace

absl::Status Backward(const BiasBackward& args, Stream stream) {
  const int64_t rows = args.dy.dim(0);
  const int64_t columns = args.dy.dim(1);
  if (rows * columns == 0) return absl::OkStatus();
  const int packet = static_cast<int>(16 / SizeOf(args.dy.dtype));
  const int width = columns % packet == 0 && RowsStartAtPackets(args.dy) ? packet : 1;
  const int64_t column_blocks = CeilDiv(columns, kLanes * width);
  const int64_t wanted = std::max<int64_t>(MultiprocessorCount() * kBlocksPerProcessor / column_blocks, 1);
  const int64_t rows_of_block = std::max(CeilDiv(rows, wanted), kLeastRowsOfBlock);
  const int64_t parts = CeilDiv(rows, rows_of_block);
  ASSIGN_OR_RETURN(const Workspace workspace, Workspace::Take("bias", stream, parts * columns * 4));
  float* partials = workspace.at<float>(0);
  const cudaStream_t handle = HandleOf(stream);
  VisitFloating(args.dy.dtype, [&](auto zero) {
    using T = DeviceType<decltype(zero)>;
    const auto launch = [&](auto kernel) {
      const dim3 grid(static_cast<unsigned>(column_blocks), static_cast<unsigned>(parts));
      kernel<<<grid, kLanes * kGroups, 0, handle>>>(static_cast<const T*>(args.dy.data), args.dy.row_stride, rows,
                                                    rows_of_block, static_cast<int>(columns), partials);
    };
    width == 1 ? launch(PartialSumsKernel<T, 1>) : launch(PartialSumsKernel<T, kPacketWidth<T>>);
  });
  AddColumnSums({.partials = partials,
                 .parts = static_cast<int>(parts),
                 .columns = static_cast<int>(columns),
                 .out = args.dbias.as<float>(),
                 .split = static_cast<int>(columns)},
                handle);
  return LaunchStatus("bias");
}

}  // namespace sluice::kernels::cuda
