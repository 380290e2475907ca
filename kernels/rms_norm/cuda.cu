#include <algorithm>

#include "common/status_macros.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/rms_norm/backends.h"
#include "kernels/visit_dtype.h"

// A row stays in registers between the pass that takes its statistics and the pass that uses them, so every array is
// read once and written once: forward moves 2 (with a residual 4) rows a row, backward 4 (5 with y). A warp has a row
// of up to 128 packets of 16 bytes, a block a longer one. Rows that are longer still, or do not start at multiples of
// 16 bytes, take a path that reads twice.

namespace sluice::kernels::cuda {
namespace {

// The rows of [T, H] or, counted through, of [T, heads, H].
template <typename T>
struct Rows {
  T* data = nullptr;
  int64_t token_stride = 0;
};

struct Size {
  int64_t rows = 0;
  int heads = 1;
  int hidden = 0;
};

struct Place {
  int64_t token, offset;
};

__device__ __forceinline__ Place PlaceOf(int64_t row, const Size& size) {
  if (size.heads == 1) return {row, 0};
  const int64_t token = row / size.heads;
  return {token, (row - token * size.heads) * size.hidden};
}

template <typename T>
__device__ __forceinline__ T* At(const Rows<T>& rows, const Place& place) {
  return rows.data + place.token * rows.token_stride + place.offset;
}

template <typename T>
struct ForwardArgs {
  Size size;
  Rows<const T> x, residual;
  const T* weight = nullptr;
  float eps = 0;
  Rows<T> residual_out, y;
  float* rstd = nullptr;
};

template <typename T>
struct BackwardArgs {
  Size size;
  Rows<const T> dy, r;
  const T* weight = nullptr;
  const float* rstd = nullptr;
  Rows<T> dr, y;
  float* partials = nullptr;  // [blocks, H], or null: no dweight
};

constexpr int kForwardWarps = 4;    // rows of a block where a warp has a row
constexpr int kBackwardWarps = 12;  // one block to a multiprocessor: few partial sums
constexpr int kMaxThreads = 512;    // of a row's block: 128 registers a thread
// Backward with four packets a thread needs more registers.
constexpr int kMaxBackwardThreadsOf4 = 384;

constexpr int MaxBackwardThreads(int packets) { return packets > 2 ? kMaxBackwardThreadsOf4 : kMaxThreads; }

// How a row lies in the registers of its threads: lane i has packets i, i + lanes, ...
template <typename T, int kPackets, bool kWarpHasRow>
struct Lanes {
  static constexpr int kWidth = kPacketWidth<T>;
  using RawPacket = Raw<T, kWidth>;

  int lane, lanes, packets;

  __device__ explicit Lanes(int hidden)
      : lane(kWarpHasRow ? threadIdx.x % 32 : threadIdx.x),
        lanes(kWarpHasRow ? 32 : blockDim.x),
        packets(hidden / kWidth) {}

  __device__ __forceinline__ int PacketOf(int k) const { return lane + k * lanes; }

  // Packets beyond the row are zeros, which add nothing to a sum.
  __device__ __forceinline__ void LoadRow(const T* row, RawPacket (&to)[kPackets]) const {
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      to[k] = PacketOf(k) < packets ? LoadRaw<T, kWidth>(row + PacketOf(k) * kWidth) : RawPacket{};
    }
  }

  __device__ __forceinline__ float Sum(float value, float* shared) const {
    if constexpr (kWarpHasRow) return WarpSum(value);
    return BlockSum(value, shared);
  }
};

template <typename T, int kPackets, bool kWarpHasRow>
__global__ void __launch_bounds__(kWarpHasRow ? 32 * kForwardWarps : kMaxThreads) ForwardKernel(ForwardArgs<T> args) {
  using RowLanes = Lanes<T, kPackets, kWarpHasRow>;
  constexpr int kWidth = RowLanes::kWidth;
  __shared__ float shared[32];
  const int64_t row = kWarpHasRow ? static_cast<int64_t>(blockIdx.x) * kForwardWarps + threadIdx.x / 32 : blockIdx.x;
  if (row >= args.size.rows) return;
  const RowLanes lanes(args.size.hidden);
  const Place place = PlaceOf(row, args.size);

  typename RowLanes::RawPacket r[kPackets], residual[kPackets], weight[kPackets];
  const bool has_residual = args.residual.data != nullptr;
  lanes.LoadRow(At(args.x, place), r);
  if (has_residual) lanes.LoadRow(At(args.residual, place), residual);
  lanes.LoadRow(args.weight, weight);

  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
    Values<kWidth> values = Unpack<T, kWidth>(r[k]);
    if (has_residual) {
      const Values<kWidth> add = Unpack<T, kWidth>(residual[k]);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values.v[i] += add.v[i];
      r[k] = Pack<T>(values);
      values = Unpack<T, kWidth>(r[k]);  // statistics are of the rounded r
      if (lanes.PacketOf(k) < lanes.packets) {
        StoreRaw<T, kWidth>(At(args.residual_out, place) + lanes.PacketOf(k) * kWidth, r[k]);
      }
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += values.v[i] * values.v[i];
  }
  sum = lanes.Sum(sum, shared);
  const float rstd = 1.0f / sqrtf(sum / static_cast<float>(args.size.hidden) + args.eps);

  T* y = At(args.y, place);
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
    Values<kWidth> values = Unpack<T, kWidth>(r[k]);
    const Values<kWidth> scale = Unpack<T, kWidth>(weight[k]);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values.v[i] = values.v[i] * rstd * scale.v[i];
    if (lanes.PacketOf(k) < lanes.packets) StoreRaw<T, kWidth>(y + lanes.PacketOf(k) * kWidth, Pack<T>(values));
  }
  if (lanes.lane == 0) args.rstd[row] = rstd;
}

// What backward reads of one row.
template <typename T, int kPackets, bool kWarpHasRow>
struct BackwardRow {
  typename Lanes<T, kPackets, kWarpHasRow>::RawPacket dy[kPackets], r[kPackets], dr[kPackets];
  float rstd;

  __device__ __forceinline__ void Load(const BackwardArgs<T>& args, int64_t row,
                                       const Lanes<T, kPackets, kWarpHasRow>& lanes) {
    const Place place = PlaceOf(row, args.size);
    lanes.LoadRow(At(args.dy, place), dy);
    lanes.LoadRow(At(args.r, place), r);
    lanes.LoadRow(At(args.dr, place), dr);
    rstd = args.rstd[row];
  }
};

// Adds the sums of each column over the block's warps: the second half of the warps onto the first, whose sums each
// thread then adds for its columns. Neighbouring lanes lie side by side in shared memory.
template <typename T, int kPackets>
__device__ __forceinline__ void StoreWarpSums(const float (&sums)[kPackets][kPacketWidth<T>], int hidden, float* to) {
  constexpr int kWidth = kPacketWidth<T>;
  constexpr int kHalf = kBackwardWarps / 2;
  __shared__ float shared[kHalf][kPackets * kWidth][32];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  if (warp < kHalf) {
#pragma unroll
    for (int j = 0; j < kPackets * kWidth; ++j) shared[warp][j][lane] = sums[j / kWidth][j % kWidth];
  }
  __syncthreads();
  if (warp >= kHalf) {
#pragma unroll
    for (int j = 0; j < kPackets * kWidth; ++j) shared[warp - kHalf][j][lane] += sums[j / kWidth][j % kWidth];
  }
  __syncthreads();
  for (int j = warp; j < kPackets * kWidth; j += kBackwardWarps) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kHalf; ++w) sum += shared[w][j][lane];
    const int column = (lane + j / kWidth * 32) * kWidth + j % kWidth;
    if (column < hidden) to[column] = sum;
  }
}

// With n = r * rstd and g = dy * weight: dr += rstd * (g - n * mean(g * n)), dweight = sum over rows of dy * n. A block
// takes rows b, b + blocks, ..., keeps their dweight in registers and writes it once. Where registers allow (two
// packets a thread) the next row is on its way while this one is worked on.
template <typename T, int kPackets, bool kWarpHasRow>
__global__ void __launch_bounds__(MaxBackwardThreads(kPackets)) BackwardKernel(BackwardArgs<T> args) {
  using RowLanes = Lanes<T, kPackets, kWarpHasRow>;
  constexpr int kWidth = RowLanes::kWidth;
  constexpr bool kPrefetch = kPackets <= 2;
  __shared__ float shared[32];
  const RowLanes lanes(args.size.hidden);
  const int rows_at_once = kWarpHasRow ? kBackwardWarps : 1;
  const int64_t step = static_cast<int64_t>(gridDim.x) * rows_at_once;
  int64_t row = static_cast<int64_t>(blockIdx.x) * rows_at_once + (kWarpHasRow ? threadIdx.x / 32 : 0);

  typename RowLanes::RawPacket weight[kPackets];
  lanes.LoadRow(args.weight, weight);
  float dweight[kPackets][kWidth] = {};
  BackwardRow<T, kPackets, kWarpHasRow> current, next;
  if (kPrefetch && row < args.size.rows) current.Load(args, row, lanes);
  for (; row < args.size.rows; row += step) {
    if constexpr (kPrefetch) {
      if (row + step < args.size.rows) next.Load(args, row + step, lanes);
    } else {
      current.Load(args, row, lanes);
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      const Values<kWidth> dy = Unpack<T, kWidth>(current.dy[k]);
      const Values<kWidth> r = Unpack<T, kWidth>(current.r[k]);
      const Values<kWidth> scale = Unpack<T, kWidth>(weight[k]);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum += dy.v[i] * scale.v[i] * r.v[i];
    }
    sum = lanes.Sum(sum, shared);
    const float rstd = current.rstd;
    const float projection = sum * rstd * rstd / static_cast<float>(args.size.hidden);

    const Place place = PlaceOf(row, args.size);
    T* dr_row = At(args.dr, place);
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      const Values<kWidth> dy = Unpack<T, kWidth>(current.dy[k]);
      const Values<kWidth> r = Unpack<T, kWidth>(current.r[k]);
      const Values<kWidth> scale = Unpack<T, kWidth>(weight[k]);
      Values<kWidth> dr = Unpack<T, kWidth>(current.dr[k]);
      Values<kWidth> y;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        dr.v[i] += rstd * (dy.v[i] * scale.v[i] - r.v[i] * projection);
        dweight[k][i] += dy.v[i] * r.v[i] * rstd;
        y.v[i] = r.v[i] * rstd * scale.v[i];
      }
      if (lanes.PacketOf(k) >= lanes.packets) continue;
      StoreRaw<T, kWidth>(dr_row + lanes.PacketOf(k) * kWidth, Pack<T>(dr));
      if (args.y.data != nullptr) StoreRaw<T, kWidth>(At(args.y, place) + lanes.PacketOf(k) * kWidth, Pack<T>(y));
    }
    if constexpr (kPrefetch) current = next;
  }

  if (args.partials == nullptr) return;
  float* to = args.partials + static_cast<int64_t>(blockIdx.x) * args.size.hidden;
  if constexpr (kWarpHasRow) {
    StoreWarpSums<T, kPackets>(dweight, args.size.hidden, to);
  } else {
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      if (lanes.PacketOf(k) >= lanes.packets) continue;
      Values<kWidth> sums;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums.v[i] = dweight[k][i];
      StoreFloats<kWidth>(to + lanes.PacketOf(k) * kWidth, sums);
    }
  }
}

// The path for any row: value by value, the second pass reads again. A thread reads only elements that it alone writes.
constexpr int kPlainThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kPlainThreads) PlainForwardKernel(ForwardArgs<T> args) {
  __shared__ float shared[32];
  const int64_t row = blockIdx.x;
  const Place place = PlaceOf(row, args.size);
  const T* r = At(args.x, place);
  float sum = 0.0f;
  if (args.residual.data != nullptr) {
    const T* residual = At(args.residual, place);
    T* out = At(args.residual_out, place);
    for (int i = threadIdx.x; i < args.size.hidden; i += kPlainThreads) {
      out[i] = FromFloat<T>(ToFloat(r[i]) + ToFloat(residual[i]));
    }
    r = out;
  }
  for (int i = threadIdx.x; i < args.size.hidden; i += kPlainThreads) sum += ToFloat(r[i]) * ToFloat(r[i]);
  sum = BlockSum(sum, shared);
  const float rstd = 1.0f / sqrtf(sum / static_cast<float>(args.size.hidden) + args.eps);
  T* y = At(args.y, place);
  for (int i = threadIdx.x; i < args.size.hidden; i += kPlainThreads) {
    y[i] = FromFloat<T>(ToFloat(r[i]) * rstd * ToFloat(args.weight[i]));
  }
  if (threadIdx.x == 0) args.rstd[row] = rstd;
}

template <typename T>
__global__ void __launch_bounds__(kPlainThreads) PlainBackwardKernel(BackwardArgs<T> args) {
  __shared__ float shared[32];
  const int hidden = args.size.hidden;
  float* dweight = args.partials == nullptr ? nullptr : args.partials + static_cast<int64_t>(blockIdx.x) * hidden;
  if (dweight != nullptr) {
    for (int i = threadIdx.x; i < hidden; i += kPlainThreads) dweight[i] = 0.0f;
  }
  for (int64_t row = blockIdx.x; row < args.size.rows; row += gridDim.x) {
    const Place place = PlaceOf(row, args.size);
    const T* dy = At(args.dy, place);
    const T* r = At(args.r, place);
    T* dr = At(args.dr, place);
    const float rstd = args.rstd[row];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < hidden; i += kPlainThreads) {
      sum += ToFloat(dy[i]) * ToFloat(args.weight[i]) * ToFloat(r[i]);
    }
    sum = BlockSum(sum, shared);
    const float projection = sum * rstd * rstd / static_cast<float>(hidden);
    for (int i = threadIdx.x; i < hidden; i += kPlainThreads) {
      const float r_value = ToFloat(r[i]);
      const float dy_value = ToFloat(dy[i]);
      const float scale = ToFloat(args.weight[i]);
      dr[i] = FromFloat<T>(ToFloat(dr[i]) + rstd * (dy_value * scale - r_value * projection));
      if (args.y.data != nullptr) At(args.y, place)[i] = FromFloat<T>(r_value * rstd * scale);
      if (dweight != nullptr) dweight[i] += dy_value * r_value * rstd;
    }
  }
}

Size SizeOfRows(const ConstTensorView& x) {
  const int rank = x.shape.rank();
  const int64_t hidden = x.dim(rank - 1);
  const int64_t heads = rank == 3 ? x.dim(1) : 1;
  return {.rows = x.dim(0) * heads, .heads = static_cast<int>(heads), .hidden = static_cast<int>(hidden)};
}

template <typename T>
Rows<DeviceType<T>> RowsOf(const TensorView& view) {
  return {static_cast<DeviceType<T>*>(view.data), view.row_stride};
}

template <typename T>
Rows<const DeviceType<T>> RowsOf(const ConstTensorView& view) {
  return {static_cast<const DeviceType<T>*>(view.data), view.row_stride};
}

// How many packets a thread holds and how many threads a row has. kPlain: none of the fast paths fits.
struct Plan {
  enum class Path : uint8_t { kWarp, kBlockOf2, kBlockOf4, kPlain };
  Path path;
  int threads;  // of a row's block
};

Plan PlanFor(int64_t packets, bool aligned, int max_threads_of_4) {
  const auto threads = [&](int64_t per_thread) {
    return static_cast<int>(CeilDiv(CeilDiv(packets, per_thread), 32) * 32);
  };
  if (!aligned || packets > 4 * max_threads_of_4) return {Plan::Path::kPlain, kPlainThreads};
  if (packets <= 4 * 32) return {Plan::Path::kWarp, 32};
  if (packets <= 2 * kMaxThreads) return {Plan::Path::kBlockOf2, threads(2)};
  return {Plan::Path::kBlockOf4, threads(4)};
}

template <typename T>
void LaunchForward(const ForwardArgs<T>& args, const Plan& plan, cudaStream_t stream) {
  const unsigned rows = static_cast<unsigned>(args.size.rows);
  switch (plan.path) {
    case Plan::Path::kWarp:
      ForwardKernel<T, 4, true>
          <<<static_cast<unsigned>(CeilDiv(rows, kForwardWarps)), 32 * kForwardWarps, 0, stream>>>(args);
      return;
    case Plan::Path::kBlockOf2:
      ForwardKernel<T, 2, false><<<rows, plan.threads, 0, stream>>>(args);
      return;
    case Plan::Path::kBlockOf4:
      ForwardKernel<T, 4, false><<<rows, plan.threads, 0, stream>>>(args);
      return;
    case Plan::Path::kPlain:
      PlainForwardKernel<T><<<rows, kPlainThreads, 0, stream>>>(args);
      return;
  }
}

// One wave of blocks.
int64_t BackwardBlocks(const Plan& plan, int64_t rows) {
  const int64_t processors = MultiprocessorCount();
  if (plan.path == Plan::Path::kWarp) return std::min(processors, CeilDiv(rows, kBackwardWarps));
  return std::min(processors * std::max(1, kMaxThreads / plan.threads), rows);
}

template <typename T>
void LaunchBackward(const BackwardArgs<T>& args, const Plan& plan, int64_t block_count, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>(block_count);
  switch (plan.path) {
    case Plan::Path::kWarp:
      BackwardKernel<T, 4, true><<<blocks, 32 * kBackwardWarps, 0, stream>>>(args);
      return;
    case Plan::Path::kBlockOf2:
      BackwardKernel<T, 2, false><<<blocks, plan.threads, 0, stream>>>(args);
      return;
    case Plan::Path::kBlockOf4:
      BackwardKernel<T, 4, false><<<blocks, plan.threads, 0, stream>>>(args);
      return;
    case Plan::Path::kPlain:
      PlainBackwardKernel<T><<<blocks, kPlainThreads, 0, stream>>>(args);
      return;
  }
}

}  // namespace

absl::Status Forward(const RmsNormForward& args, Stream stream) {
  const Size size = SizeOfRows(args.x);
  if (size.rows == 0) return absl::OkStatus();
  const bool aligned = RowsStartAtPackets(args.x) && RowsStartAtPackets(args.residual) &&
                       RowsStartAtPackets(args.residual_out) && RowsStartAtPackets(args.y) &&
                       reinterpret_cast<uintptr_t>(args.weight.data) % 16 == 0;
  VisitFloating(args.x.dtype, [&](auto zero) {
    using Storage = decltype(zero);
    using T = DeviceType<Storage>;
    LaunchForward<T>({.size = size,
                      .x = RowsOf<Storage>(args.x),
                      .residual = RowsOf<Storage>(args.residual),
                      .weight = static_cast<const T*>(args.weight.data),
                      .eps = args.eps,
                      .residual_out = RowsOf<Storage>(args.residual_out),
                      .y = RowsOf<Storage>(args.y),
                      .rstd = args.rstd.as<float>()},
                     PlanFor(size.hidden / kPacketWidth<T>, aligned, kMaxThreads), HandleOf(stream));
  });
  return LaunchStatus("rms_norm");
}

absl::Status Backward(const RmsNormBackward& args, Stream stream) {
  const Size size = SizeOfRows(args.r);
  if (size.rows == 0) return absl::OkStatus();
  const bool aligned = RowsStartAtPackets(args.dy) && RowsStartAtPackets(args.r) && RowsStartAtPackets(args.dr) &&
                       RowsStartAtPackets(args.y) && reinterpret_cast<uintptr_t>(args.weight.data) % 16 == 0;
  const Plan plan = PlanFor(size.hidden * SizeOf(args.r.dtype) / 16, aligned, kMaxBackwardThreadsOf4);
  const int64_t blocks = BackwardBlocks(plan, size.rows);
  const bool wants_dweight = !args.dweight.empty();
  Workspace workspace;
  if (wants_dweight) {
    ASSIGN_OR_RETURN(workspace, Workspace::Take("rms_norm", stream, blocks * size.hidden * 4));
  }
  float* partials = wants_dweight ? workspace.at<float>(0) : nullptr;
  const cudaStream_t handle = HandleOf(stream);
  VisitFloating(args.r.dtype, [&](auto zero) {
    using Storage = decltype(zero);
    using T = DeviceType<Storage>;
    LaunchBackward<T>({.size = size,
                       .dy = RowsOf<Storage>(args.dy),
                       .r = RowsOf<Storage>(args.r),
                       .weight = static_cast<const T*>(args.weight.data),
                       .rstd = args.rstd.as<float>(),
                       .dr = RowsOf<Storage>(args.dr),
                       .y = RowsOf<Storage>(args.y),
                       .partials = partials},
                      plan, blocks, handle);
  });
  if (wants_dweight) {
    AddColumnSums({.partials = partials,
                   .parts = static_cast<int>(blocks),
                   .columns = size.hidden,
                   .out = args.dweight.as<float>(),
                   .split = size.hidden},
                  handle);
  }
  return LaunchStatus("rms_norm");
}

}  // namespace sluice::kernels::cuda
