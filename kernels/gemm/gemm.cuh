// Products A B^T of bf16 matrices whose tiles go from the tensor cores straight into what is done with them: the result
// itself need not be stored. For capability 9.0.
//
//   A [rows, K], B [columns, K], both with K along the row; sums in fp32
//
// A cluster is two blocks. They share their columns (256 rows of B, of which each block loads half for both) and have
// 128 rows of A each. A block is three warpgroups: of the first, one thread loads tiles of 64 elements of K into a ring
// of stages; each of the other two multiplies 64 of the block's rows with all 256 columns and hands its sums to the
// Epilogue. While one of the two is in its epilogue, the tensor cores work for the other.
//
//   struct Schedule {  // which tiles a cluster computes, in which order
//     __device__ int Count(int cluster) const;  // at least 1
//     __device__ Tile At(int cluster, int index) const;
//   };
//   struct Epilogue {
//     static constexpr int kSharedBytes;  // of shared memory, aligned to 1024: `shared` below
//     static constexpr int kSlices;       // see Slice
//     struct State;                       // a thread's own, over all tiles of its cluster
//     // The first of the 128 rows of B that block `half` loads: columns 128 half.. of the tile are made of them.
//     __device__ int RowOfB(int column_tile, int half) const;
//     // `row`: of the result, the first of the warpgroup's 64; in Begin and End of the cluster's first tile.
//     // `sums`: see hopper.cuh. The warpgroups are 0 and 1.
//     __device__ State Begin(int row) const;
//     __device__ void Take(State&, float (&sums)[kSums], int row, int column_tile) const;
//     // What need not be done in Take, from what Take left in the state: each of the kSlices parts runs while the
//     // tensor cores are at the next tile.
//     __device__ void Slice(int slice, State&, int warpgroup, char* shared) const;
//     __device__ void End(State&, int row, int cluster) const;
//   };
//
// REQUIRES: K spans at least kSlices tiles of kGemmK.
#pragma once

#include "absl/status/status.h"
#include "kernels/cuda/workspace.h"
#include "kernels/gemm/hopper.cuh"
#include "kernels/gemm/tensor_map.h"

namespace sluice::kernels::cuda {

inline constexpr int kGemmRows = 128;     // of A, a block
inline constexpr int kGemmColumns = 256;  // a cluster
inline constexpr int kGemmK = 64;
inline constexpr int kGemmStages = 4;
inline constexpr int kGemmThreads = 384;
inline constexpr int kGemmClusterBlocks = 2;
inline constexpr int kGemmClusterRows = kGemmClusterBlocks * kGemmRows;

struct Tile {
  int row_pair;  // rows kGemmClusterRows * row_pair.. of A
  int column;    // what the epilogue takes for a tile of columns
};

struct GemmStages {
  static constexpr int kBytesOfA = kGemmRows * kGemmK * 2;
  static constexpr int kBytesOfB = kGemmColumns * kGemmK * 2;
  static constexpr int kBytes = kBytesOfA + kBytesOfB;
};

template <typename Schedule, typename Epilogue>
__global__ void __cluster_dims__(kGemmClusterBlocks, 1, 1) __launch_bounds__(kGemmThreads, 1)
    GemmKernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, int k_tiles,
               Schedule schedule, const __grid_constant__ Epilogue epilogue) {
  using namespace hopper;
  constexpr int kConsumers = 2;  // warpgroups of a block
  extern __shared__ char shared_memory[];
  __shared__ uint64_t full[kGemmStages], empty[kGemmStages];
  char* const tiles = shared_memory + (1024 - SharedAddress(shared_memory) % 1024) % 1024;
  const auto a_at = [&](int stage) { return tiles + stage * GemmStages::kBytes; };
  const auto b_at = [&](int stage) { return a_at(stage) + GemmStages::kBytesOfA; };
  char* const epilogue_shared = tiles + kGemmStages * GemmStages::kBytes;

  const auto rank = static_cast<int>(RankInCluster());
  const int cluster = blockIdx.x / kGemmClusterBlocks;
  const int count = schedule.Count(cluster);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kGemmStages; ++stage) {
      InitBarrier(&full[stage], 1);
      InitBarrier(&empty[stage], kGemmClusterBlocks * kConsumers * 4);  // every warp that reads, of both blocks
    }
    PublishBarriers();
  }
  MeetCluster();

  int stage = 0;
  uint32_t parity = 0;
  const auto advance = [&] {
    if (++stage == kGemmStages) {
      stage = 0;
      parity ^= 1;
    }
  };
  const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;
  if (warpgroup < 0) {
    GiveRegisters<40>();
    if (threadIdx.x == 0) {
      for (int i = 0; i < count; ++i) {
        const Tile tile = schedule.At(cluster, i);
        const int row_of_a = (tile.row_pair * kGemmClusterBlocks + rank) * kGemmRows;
        const int row_of_b = epilogue.RowOfB(tile.column, rank);
        for (int k = 0; k < k_tiles; ++k) {
          Wait(&empty[stage], parity ^ 1);  // the first round finds all stages empty
          ArriveExpecting(&full[stage], GemmStages::kBytes);
          LoadTile(a_at(stage), a, k * kGemmK, row_of_a, &full[stage]);
          LoadTileForAll(b_at(stage) + rank * (GemmStages::kBytesOfB / 2), b, k * kGemmK, row_of_b, &full[stage],
                         (1 << kGemmClusterBlocks) - 1);
          advance();
        }
      }
    }
  } else {
    TakeRegisters<232>();
    const bool signals = threadIdx.x % 32 == 0;
    const auto release = [&](int read) {
      if (!signals) return;
      for (uint32_t block = 0; block < kGemmClusterBlocks; ++block) ArriveAt(&empty[read], block);
    };
    const auto row_of = [&](const Tile& tile) {
      return (tile.row_pair * kGemmClusterBlocks + rank) * kGemmRows + warpgroup * 64;
    };
    float sums[kSums];
    int unreleased = -1;  // the stage that the last products but one have read
    const auto issue = [&](bool overwrites) {
      Wait(&full[stage], parity);
      const uint64_t operand_a = OperandOf(a_at(stage) + warpgroup * 64 * kGemmK * 2);
      const uint64_t operand_b = OperandOf(b_at(stage));
      BeginProducts();
#pragma unroll
      for (int along = 0; along < kGemmK; along += 16) {
        Product(sums, Along(operand_a, along), Along(operand_b, along), !overwrites || along > 0);
      }
      CommitProducts();
    };
    const auto settle = [&] {
      WaitForProducts<1>();
      if (unreleased >= 0) release(unreleased);
      unreleased = stage;
      advance();
    };
    typename Epilogue::State state = epilogue.Begin(row_of(schedule.At(cluster, 0)));
    for (int i = 0; i < count; ++i) {
      const Tile tile = schedule.At(cluster, i);
      PinSums(sums);
#pragma unroll
      for (int slice = 0; slice < Epilogue::kSlices; ++slice) {
        issue(slice == 0);
        if (i > 0) epilogue.Slice(slice, state, warpgroup, epilogue_shared);
        settle();
      }
      for (int k = Epilogue::kSlices; k < k_tiles; ++k) {
        issue(k == 0);
        settle();
      }
      WaitForProducts<0>();
      PinSums(sums);
      release(unreleased);
      unreleased = -1;
      epilogue.Take(state, sums, row_of(tile), tile.column);
    }
#pragma unroll
    for (int slice = 0; slice < Epilogue::kSlices; ++slice) epilogue.Slice(slice, state, warpgroup, epilogue_shared);
    epilogue.End(state, row_of(schedule.At(cluster, 0)), cluster);
  }
  __syncwarp();
  MeetCluster();  // nobody leaves while the other block may still tell it something
}

template <typename Schedule, typename Epilogue>
absl::Status LaunchGemm(std::string_view kernel_name, ConstTensorView a, ConstTensorView b, int clusters,
                        const Schedule& schedule, const Epilogue& epilogue, cudaStream_t stream) {
  const absl::StatusOr<CUtensorMap> map_a = TiledBy(a, kGemmRows);
  if (!map_a.ok()) return map_a.status();
  const absl::StatusOr<CUtensorMap> map_b = TiledBy(b, kGemmColumns / 2);
  if (!map_b.ok()) return map_b.status();
  constexpr int kShared = kGemmStages * GemmStages::kBytes + Epilogue::kSharedBytes + 1024;
  const auto kernel = GemmKernel<Schedule, Epilogue>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  const auto k_tiles = static_cast<int>((a.dim(1) + kGemmK - 1) / kGemmK);
  kernel<<<static_cast<unsigned>(clusters * kGemmClusterBlocks), kGemmThreads, kShared, stream>>>(
      *map_a, *map_b, k_tiles, schedule, epilogue);
  return LaunchStatus(kernel_name);
}

}  // namespace sluice::kernels::cuda
