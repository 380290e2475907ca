#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/embedding/backends.h"
#include "kernels/visit_dtype.h"

// Forward copies rows: a warp has 128 packets of 16 bytes of one row (all of it up to H = 1024 in bf16).
//
// Backward sorts the tokens by id, stably, so that the rows of one id follow each other in the order of the tokens. The
// sorted tokens are cut into tiles of 32; a warp adds the rows of one tile in 32 packets' width of columns, whatever
// ids they have, so the work is even also where one id occurs thousands of times. An id whose rows end in the tile
// where they began is added to its row of dweight at once. Sums that cross a tile's border are put down, at most two a
// tile, and a second kernel adds those of one id in the order of the tiles. dy is read once, and one row of dweight
// read and written for each id.

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 4;       // of a block; each works alone
constexpr int kCopyUnroll = 4;  // packets a lane in forward
constexpr int kTile = 32;       // sorted tokens, one a lane
constexpr int kRowsAtOnce = 8;  // rows of a tile on their way at a time
constexpr int kTilesAtOnce = 8;

template <typename Word>
__global__ void __launch_bounds__(32 * kWarps)
    CopyRowsKernel(const int32_t* ids, const Word* table, int64_t tokens, int words, int warps_of_row, Word* y) {
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t token = warp / warps_of_row;
  if (token >= tokens) return;
  const int first = static_cast<int>(warp - token * warps_of_row) * (32 * kCopyUnroll) + threadIdx.x % 32;
  const Word* from = table + static_cast<int64_t>(ids[token]) * words;
  Word* to = y + token * words;
  Word copy[kCopyUnroll];
#pragma unroll
  for (int k = 0; k < kCopyUnroll; ++k) {
    if (first + k * 32 < words) copy[k] = from[first + k * 32];
  }
#pragma unroll
  for (int k = 0; k < kCopyUnroll; ++k) {
    if (first + k * 32 < words) to[first + k * 32] = copy[k];
  }
}

template <typename Word>
void CopyRows(const EmbeddingForward& args, int64_t row_bytes, cudaStream_t stream) {
  const int64_t tokens = args.ids.dim(0);
  const int words = static_cast<int>(row_bytes / static_cast<int64_t>(sizeof(Word)));
  const int64_t warps_of_row = CeilDiv(words, 32 * kCopyUnroll);
  CopyRowsKernel<Word><<<static_cast<unsigned>(CeilDiv(tokens * warps_of_row, kWarps)), 32 * kWarps, 0, stream>>>(
      args.ids.as<int32_t>(), static_cast<const Word*>(args.weight.data), tokens, words, static_cast<int>(warps_of_row),
      static_cast<Word*>(args.y.data));
}

__global__ void __launch_bounds__(256) CountUpKernel(int32_t* numbers, int count) {
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at < count) numbers[at] = at;
}

template <typename T>
struct SumArgs {
  const uint32_t* ids = nullptr;   // sorted
  const int32_t* slots = nullptr;  // of the sorted ids
  int tokens = 0;
  int tiles = 0;
  int hidden = 0;
  int warps_of_tile = 0;
  const T* dy = nullptr;
  float* dweight = nullptr;
  float* crossing = nullptr;  // [tiles, 2, H]: sums of the id that came into the tile, of the id that goes on after it
};

// The tile and the column of this thread; warps of one tile are neighbours.
struct Spot {
  int tile, column;

  __device__ __forceinline__ Spot(int warps_of_tile, int width) {
    const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
    tile = static_cast<int>(warp / warps_of_tile);
    column = (static_cast<int>(warp - static_cast<int64_t>(tile) * warps_of_tile) * 32 + threadIdx.x % 32) * width;
  }
};

template <int kWidth>
__device__ __forceinline__ void AddTo(float* at, const Values<kWidth>& sums) {
  Values<kWidth> values = LoadFloats<kWidth>(at);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values.v[i] += sums.v[i];
  StoreFloats<kWidth>(at, values);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(32 * kWarps) SumTilesKernel(SumArgs<T> args) {
  const Spot spot(args.warps_of_tile, kWidth);
  if (spot.tile >= args.tiles) return;
  const int lane = threadIdx.x % 32;
  const int begin = spot.tile * kTile;
  const int rows = min(kTile, args.tokens - begin);
  const bool has_columns = spot.column < args.hidden;
  const uint32_t id = lane < rows ? args.ids[begin + lane] : 0;
  const int32_t slot = lane < rows ? args.slots[begin + lane] : 0;
  const uint32_t first_id = __shfl_sync(0xFFFFFFFFu, id, 0);
  const uint32_t last_id = __shfl_sync(0xFFFFFFFFu, id, rows - 1);
  const bool comes_in = begin > 0 && args.ids[begin - 1] == first_id;
  const bool goes_on = begin + rows < args.tokens && args.ids[begin + rows] == last_id;
  float* crossing = args.crossing + static_cast<int64_t>(spot.tile) * 2 * args.hidden + spot.column;

  bool first_run = true;
  Values<kWidth> sums = {};
  for (int base = 0; base < rows; base += kRowsAtOnce) {
    Raw<T, kWidth> raw[kRowsAtOnce];
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      const int64_t from = __shfl_sync(0xFFFFFFFFu, slot, base + k);
      raw[k] = base + k < rows && has_columns ? LoadRaw<T, kWidth>(args.dy + from * args.hidden + spot.column)
                                              : Raw<T, kWidth>{};
    }
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      const int row = base + k;
      const uint32_t here = __shfl_sync(0xFFFFFFFFu, id, row);
      const uint32_t next = __shfl_sync(0xFFFFFFFFu, id, (row + 1) % 32);
      if (row >= rows) continue;
      const Values<kWidth> values = Unpack<T, kWidth>(raw[k]);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums.v[i] += values.v[i];
      const bool last = row == rows - 1;
      if (!last && next == here) continue;
      if (has_columns) {
        if (first_run && comes_in) {
          StoreFloats<kWidth>(crossing, sums);
        } else if (last && goes_on) {
          StoreFloats<kWidth>(crossing + args.hidden, sums);
        } else {
          AddTo<kWidth>(args.dweight + static_cast<int64_t>(here) * args.hidden + spot.column, sums);
        }
      }
      first_run = false;
      sums = {};
    }
  }
}

// A warp whose tile begins a crossing id adds its sums up to the tile where it ends.
template <typename T, int kWidth>
__global__ void __launch_bounds__(32 * kWarps) SumCrossingKernel(SumArgs<T> args) {
  const Spot spot(args.warps_of_tile, kWidth);
  if (spot.tile + 1 >= args.tiles) return;
  const int lane = threadIdx.x % 32;
  const int begin = spot.tile * kTile;
  const uint32_t id = args.ids[begin + kTile - 1];
  if (args.ids[begin + kTile] != id) return;
  if (args.ids[begin] == id && begin > 0 && args.ids[begin - 1] == id) return;  // began in an earlier tile
  int after = spot.tile + 1;  // the first tile that the id does not come into; a lane looks at one tile
  while (true) {
    const int64_t at = static_cast<int64_t>(after + lane) * kTile;
    const bool comes_in = at < args.tokens && args.ids[at] == id;
    const unsigned ballot = __ballot_sync(0xFFFFFFFFu, comes_in);
    after += __popc(ballot);  // ids are sorted: the lanes that say yes are the first ones
    if (ballot != 0xFFFFFFFFu) break;
  }
  if (spot.column >= args.hidden) return;
  const float* crossing = args.crossing + spot.column;
  Values<kWidth> sums = LoadFloats<kWidth>(crossing + (static_cast<int64_t>(spot.tile) * 2 + 1) * args.hidden);
  const auto sums_of = [&](int tile) { return LoadFloats<kWidth>(crossing + int64_t{tile} * 2 * args.hidden); };
  const auto add = [&](const Values<kWidth>& values) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums.v[i] += values.v[i];
  };
  int tile = spot.tile + 1;
  for (; tile + kTilesAtOnce <= after; tile += kTilesAtOnce) {
    Values<kWidth> values[kTilesAtOnce];
#pragma unroll
    for (int k = 0; k < kTilesAtOnce; ++k) values[k] = sums_of(tile + k);
#pragma unroll
    for (int k = 0; k < kTilesAtOnce; ++k) add(values[k]);
  }
  for (; tile < after; ++tile) add(sums_of(tile));
  AddTo<kWidth>(args.dweight + static_cast<int64_t>(id) * args.hidden + spot.column, sums);
}

template <typename T, int kWidth>
void SumRows(SumArgs<T> args, cudaStream_t stream) {
  args.warps_of_tile = static_cast<int>(CeilDiv(args.hidden, 32 * kWidth));
  const unsigned blocks = static_cast<unsigned>(CeilDiv(static_cast<int64_t>(args.tiles) * args.warps_of_tile, kWarps));
  SumTilesKernel<T, kWidth><<<blocks, 32 * kWarps, 0, stream>>>(args);
  if (args.tiles > 1) SumCrossingKernel<T, kWidth><<<blocks, 32 * kWarps, 0, stream>>>(args);
}

int BitsFor(int64_t vocabulary) {
  int bits = 1;
  while (bits < 31 && int64_t{1} << bits < vocabulary) ++bits;
  return bits;
}

// The parts of backward's workspace.
struct Parts {
  int64_t ids, slots, unsorted_slots, crossing, sort, total;
  size_t sort_bytes;
};

}  // namespace

absl::Status Forward(const EmbeddingForward& args, Stream stream) {
  if (args.y.elements() == 0) return absl::OkStatus();
  const int64_t row_bytes = args.weight.dim(1) * SizeOf(args.weight.dtype);
  const cudaStream_t handle = HandleOf(stream);
  if (row_bytes % 16 == 0 && StartsAtPacket(args.weight.data) && StartsAtPacket(args.y.data)) {
    CopyRows<uint4>(args, row_bytes, handle);
  } else if (args.weight.dtype == DType::kBFloat16) {
    CopyRows<uint16_t>(args, row_bytes, handle);
  } else {
    CopyRows<uint32_t>(args, row_bytes, handle);
  }
  return LaunchStatus("embedding");
}

absl::Status Backward(const EmbeddingBackward& args, Stream stream) {
  if (args.dy.elements() == 0) return absl::OkStatus();
  const int tokens = static_cast<int>(args.ids.dim(0));
  const int hidden = static_cast<int>(args.dy.dim(1));
  const int tiles = static_cast<int>(CeilDiv(tokens, kTile));
  const int bits = BitsFor(args.dweight.dim(0));
  const cudaStream_t handle = HandleOf(stream);
  const auto* ids = reinterpret_cast<const uint32_t*>(args.ids.as<int32_t>());  // they are not negative

  const auto sort = [&](void* temporary, size_t& bytes, uint32_t* sorted, const int32_t* from, int32_t* slots) {
    return cub::DeviceRadixSort::SortPairs(temporary, bytes, ids, sorted, from, slots, tokens, 0, bits, handle);
  };
  Parts parts = {};
  cudaError_t error = sort(nullptr, parts.sort_bytes, nullptr, nullptr, nullptr);
  if (error != cudaSuccess) return absl::InternalError(absl::StrCat("embedding: sort: ", cudaGetErrorString(error)));
  const int64_t of_tokens = Aligned(int64_t{4} * tokens);
  parts.slots = parts.ids + of_tokens;
  parts.unsorted_slots = parts.slots + of_tokens;
  parts.crossing = parts.unsorted_slots + of_tokens;
  parts.sort = parts.crossing + Aligned(int64_t{tiles} * 2 * hidden * 4);
  parts.total = parts.sort + static_cast<int64_t>(parts.sort_bytes);
  ASSIGN_OR_RETURN(const Workspace workspace, Workspace::Take("embedding", stream, parts.total));

  auto* sorted = workspace.at<uint32_t>(parts.ids);
  auto* slots = workspace.at<int32_t>(parts.slots);
  auto* unsorted_slots = workspace.at<int32_t>(parts.unsorted_slots);
  CountUpKernel<<<static_cast<unsigned>(CeilDiv(tokens, 256)), 256, 0, handle>>>(unsorted_slots, tokens);
  error = sort(workspace.at<void>(parts.sort), parts.sort_bytes, sorted, unsorted_slots, slots);
  if (error != cudaSuccess) return absl::InternalError(absl::StrCat("embedding: sort: ", cudaGetErrorString(error)));

  VisitFloating(args.dy.dtype, [&](auto zero) {
    using T = DeviceType<decltype(zero)>;
    const SumArgs<T> sum_args = {.ids = sorted,
                                 .slots = slots,
                                 .tokens = tokens,
                                 .tiles = tiles,
                                 .hidden = hidden,
                                 .dy = static_cast<const T*>(args.dy.data),
                                 .dweight = args.dweight.as<float>(),
                                 .crossing = workspace.at<float>(parts.crossing)};
    const bool in_packets =
        hidden % kPacketWidth<T> == 0 && StartsAtPacket(args.dy.data) && StartsAtPacket(args.dweight.data);
    in_packets ? SumRows<T, kPacketWidth<T>>(sum_args, handle) : SumRows<T, 1>(sum_args, handle);
  });
  return LaunchStatus("embedding");
}

}  // namespace sluice::kernels::cuda
