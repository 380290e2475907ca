#include "kernels/cross_entropy/rows.h"

#include <string_view>

#include "kernels/cuda/values.cuh"
#include "kernels/cuda/workspace.h"

namespace sluice::kernels::cuda {
namespace {

constexpr std::string_view kKernel = "cross_entropy";

constexpr int kCopyThreads = 128;
constexpr int kZeroThreads = 256;

// A row of `bytes` bytes from `from`, or zeros if that is null, by the block's threads or by one warp.
__device__ void CopyRow(const char* from, char* to, int64_t bytes, bool aligned, int thread, int threads) {
  if (aligned) {
    const auto* source = reinterpret_cast<const uint4*>(from);
    auto* target = reinterpret_cast<uint4*>(to);
    for (int64_t i = thread; i < bytes / 16; i += threads) {
      target[i] = source == nullptr ? make_uint4(0, 0, 0, 0) : source[i];
    }
  } else {
    const auto* source = reinterpret_cast<const uint16_t*>(from);
    auto* target = reinterpret_cast<uint16_t*>(to);
    for (int64_t i = thread; i < bytes / 2; i += threads) target[i] = source == nullptr ? 0 : source[i];
  }
}

// Row i of `to` is row slots[i] of `from`; zero from row `rows` on. A block a row.
__global__ void __launch_bounds__(kCopyThreads)
    GatherKernel(const char* from, const int32_t* slots, int64_t rows, int64_t row_bytes, bool aligned, char* to) {
  const int64_t row = blockIdx.x;
  const char* source = row < rows ? from + slots[row] * row_bytes : nullptr;
  CopyRow(source, to + row * row_bytes, row_bytes, aligned, threadIdx.x, kCopyThreads);
}

__global__ void __launch_bounds__(kCopyThreads)
    ScatterKernel(const char* from, const int32_t* slots, int64_t row_bytes, bool aligned, char* to) {
  const int64_t row = blockIdx.x;
  CopyRow(from + row * row_bytes, to + slots[row] * row_bytes, row_bytes, aligned, threadIdx.x, kCopyThreads);
}

// Zeroes the rows that are not in `slots`, and leaves those that are: dhidden may be hidden, which is still to be read.
// A warp a row: it looks for its row in `slots`, whose upper levels of the search all warps find in the cache.
__global__ void __launch_bounds__(kZeroThreads)
    ZeroOthersKernel(const int32_t* slots, int64_t scored, int64_t rows, int64_t row_bytes, bool aligned, char* to) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kZeroThreads + threadIdx.x) / 32;
  if (row >= rows) return;
  int64_t begin = 0, end = scored;  // the first slot >= row is in [begin, end]
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (slots[middle] < row) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  if (begin < scored && slots[begin] == row) return;
  CopyRow(nullptr, to + row * row_bytes, row_bytes, aligned, threadIdx.x % 32, 32);
}

int64_t RowBytes(ConstTensorView rows) { return rows.dim(1) * SizeOf(rows.dtype); }

}  // namespace

absl::Status GatherScoredRows(ConstTensorView hidden, const int32_t* slots, int64_t rows, TensorView to,
                              Stream stream) {
  GatherKernel<<<static_cast<unsigned>(to.dim(0)), kCopyThreads, 0, HandleOf(stream)>>>(
      static_cast<const char*>(hidden.data), slots, rows, RowBytes(hidden), RowsStartAtPackets(hidden),
      static_cast<char*>(to.data));
  return LaunchStatus(kKernel);
}

absl::Status ScatterScoredRows(ConstTensorView from, const int32_t* slots, int64_t rows, TensorView to, Stream stream) {
  ScatterKernel<<<static_cast<unsigned>(rows), kCopyThreads, 0, HandleOf(stream)>>>(
      static_cast<const char*>(from.data), slots, RowBytes(from), RowsStartAtPackets(to), static_cast<char*>(to.data));
  return LaunchStatus(kKernel);
}

absl::Status ZeroOtherRows(const int32_t* slots, int64_t scored, TensorView to, Stream stream) {
  constexpr int64_t kRowsPerBlock = kZeroThreads / 32;
  const int64_t rows = to.dim(0);
  ZeroOthersKernel<<<static_cast<unsigned>((rows + kRowsPerBlock - 1) / kRowsPerBlock), kZeroThreads, 0,
                     HandleOf(stream)>>>(slots, scored, rows, RowBytes(to), RowsStartAtPackets(to),
                                         static_cast<char*>(to.data));
  return LaunchStatus(kKernel);
}

}  // namespace sluice::kernels::cuda
