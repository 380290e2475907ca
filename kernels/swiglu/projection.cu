// The activation in the epilogue of the product that makes gate and up: they are read from the registers that hold
// them, not from memory. A tile of columns is 128 of the gate and the same 128 of up, which a thread then has side by
// side.
#include "kernels/gemm/gemm.cuh"
#include "kernels/swiglu/activation.cuh"
#include "kernels/swiglu/backends.h"

namespace sluice::kernels::cuda {
namespace {

constexpr std::string_view kKernel = "swiglu_projection";
constexpr int kTileColumns = kGemmColumns / 2;  // of the gate, and of up
// Tiles that are computed at a time lie close together, in rows and columns: what they read is then in the cache.
struct BlockedSchedule {
  static constexpr int kRowPairs = 8;  // of a band
  int row_pairs, column_tiles, clusters;

  __device__ int Count(int cluster) const { return (row_pairs * column_tiles - cluster + clusters - 1) / clusters; }
  __device__ Tile At(int cluster, int index) const {
    const int at = cluster + index * clusters;
    const int band = at / (kRowPairs * column_tiles), in_band = at % (kRowPairs * column_tiles);
    const int height = min(kRowPairs, row_pairs - band * kRowPairs);
    return {band * kRowPairs + in_band % height, in_band / height};
  }
};

struct ActivationEpilogue {
  static constexpr int kPieceColumns = 64;                    // that a warp stores at a time,
  static constexpr int kPieceBytes = 16 * kPieceColumns * 2;  // of its 16 rows
  static constexpr int kSharedBytes = 8 * kPieceBytes;
  static constexpr int kPieces = kTileColumns / kPieceColumns;
  static constexpr int kSlices = 3 * kPieces;  // of each piece the gate, up and the activation
  // A tile as it is stored: pairs of the lane's columns 8 j.. at [2 j + half] (hopper.cuh). What the backward computes
  // again from gate and up is then the same as here.
  struct State {
    int row = 0, column = 0;
    uint32_t gate[hopper::kSums / 4], up[hopper::kSums / 4];
  };

  int rows, intermediate;
  __nv_bfloat16* gate_up;
  __nv_bfloat16* y;

  __device__ int RowOfB(int column_tile, int half) const { return column_tile * kTileColumns + half * intermediate; }
  __device__ State Begin(int) const { return State(); }
  __device__ void End(State&, int, int) const {}

  // 16 rows by 64 columns from `row` and `column` on, the lane's two values of columns 8 j.. of its upper or lower row
  // being pair(j, half): by way of shared memory, so that a row is written in whole lines.
  template <typename Pair>
  __device__ __forceinline__ void Store(__nv_bfloat16* to, int64_t stride, int row, int column, char* buffer,
                                        Pair pair) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto place = [&](int in_row, int packet) { return buffer + in_row * 128 + (packet ^ in_row % 8) * 16; };
    __syncwarp();  // the last piece has been read
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      hopper::StoreMatrices(place(lane % 16, j + lane / 16), {pair(j, 0), pair(j, 1), pair(j + 1, 0), pair(j + 1, 1)});
    }
    __syncwarp();
    const int packet = lane % 8;
    const bool inside = column + packet * 8 < intermediate;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int in_row = i * 4 + lane / 8;
      const uint4 values = *reinterpret_cast<const uint4*>(place(in_row, packet));
      if (inside && row + in_row < rows) {
        *reinterpret_cast<uint4*>(to + (row + in_row) * stride + column + packet * 8) = values;
      }
    }
  }

  __device__ static uint32_t Pack(float a, float b) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }

  __device__ __forceinline__ void Take(State& state, float (&sums)[hopper::kSums], int row, int column_tile) const {
    state.row = row + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
    state.column = column_tile * kTileColumns;
#pragma unroll
    for (int i = 0; i < hopper::kSums / 4; ++i) {
      state.gate[i] = Pack(sums[2 * i], sums[2 * i + 1]);
      state.up[i] = Pack(sums[hopper::kSums / 2 + 2 * i], sums[hopper::kSums / 2 + 2 * i + 1]);
    }
  }

  __device__ __forceinline__ void Slice(int slice, const State& state, int warpgroup, char* shared) const {
    char* const buffer = shared + (warpgroup * 4 + static_cast<int>(threadIdx.x) % 128 / 32) * kPieceBytes;
    const int piece = slice / 3, first = piece * (kPieceColumns / 4);
    const int column = state.column + piece * kPieceColumns;
    const auto gate = [&](int j, int half) { return state.gate[first + 2 * j + half]; };
    const auto up = [&](int j, int half) { return state.up[first + 2 * j + half]; };
    if (slice % 3 == 0) Store(gate_up, 2 * intermediate, state.row, column, buffer, gate);
    if (slice % 3 == 1) Store(gate_up + intermediate, 2 * intermediate, state.row, column, buffer, up);
    if (slice % 3 != 2) return;
    Store(y, intermediate, state.row, column, buffer, [&](int j, int half) {
      const uint32_t gates = gate(j, half), ups = up(j, half);
      const float2 g = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&gates));
      const float2 u = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&ups));
      return Pack(Activation(g.x, Sigmoid<__nv_bfloat16>(g.x), u.x), Activation(g.y, Sigmoid<__nv_bfloat16>(g.y), u.y));
    });
  }
};

// Fewer rows leave most multiprocessors without a tile, and are bound by reading the weights.
constexpr int64_t kFewestRows = 1024;
constexpr int64_t kLeastHidden = ActivationEpilogue::kSlices * kGemmK;
// With more the product takes so long that nothing is to be won from the activation.
constexpr int64_t kMostHidden = 2048;

}  // namespace

bool CanFuse(const SwigluProjection& args) {
  const int64_t intermediate = args.y.dim(1);
  return args.bias.empty() && args.x.dim(0) >= kFewestRows && args.x.dim(1) >= kLeastHidden &&
         args.x.dim(1) <= kMostHidden && intermediate % 8 == 0 && CanBeTiled(args.x) && CanBeTiled(args.weight);
}

absl::Status RunFused(const SwigluProjection& args, Stream stream) {
  const int64_t intermediate = args.y.dim(1);
  const ActivationEpilogue epilogue = {.rows = static_cast<int>(args.x.dim(0)),
                                       .intermediate = static_cast<int>(intermediate),
                                       .gate_up = static_cast<__nv_bfloat16*>(args.gate_up.data),
                                       .y = static_cast<__nv_bfloat16*>(args.y.data)};
  const auto row_pairs = static_cast<int>((args.x.dim(0) + kGemmClusterRows - 1) / kGemmClusterRows);
  const auto column_tiles = static_cast<int>((intermediate + kTileColumns - 1) / kTileColumns);
  const int clusters = std::min(row_pairs * column_tiles, MultiprocessorCount() / kGemmClusterBlocks);
  return LaunchGemm(kKernel, args.x, args.weight, clusters, BlockedSchedule{row_pairs, column_tiles, clusters},
                    epilogue, HandleOf(stream));
}

}  // namespace sluice::kernels::cuda
