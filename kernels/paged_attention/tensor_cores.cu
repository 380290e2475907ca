// A block has one query token and up to 16 of the query heads that share a key/value head: they are the rows of its
// products, so each key and value is read once for all of them. Its warps take tiles of keys in turns, each tile's keys
// and values lying in 8 KiB of shared memory while the next tile's are on their way. Scores and weighted values are
// products of tensor cores, the weights rounded to bf16 between the two; each warp keeps a running maximum, sum and
// output in fp32 (Milakov & Gimelshein 2018, online softmax). Where there are few tokens the blocks of a cluster share
// the keys of one. At the end all is joined in the order of blocks and warps, so a result is a function of the query,
// of what it sees and of how many blocks that are.
//
// Layouts of fragments and of ldmatrix: PTX ISA 8.7, "Matrix fragments for mma.m16n8k16" and "ldmatrix". Of a row of a
// tile the 16-byte chunk c lies at c ^ (row % 8), so that ldmatrix reads eight rows from different banks.
#include "kernels/paged_attention/tensor_cores.h"

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <math_constants.h>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/paged_attention/arguments.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr std::string_view kKernel = "paged_attention";
constexpr int kWarps = 4;
constexpr int kRows = 16;   // query heads of a block
constexpr int kStages = 2;  // tiles of a warp: one is computed, the others are on their way

template <int kHeadDim>
struct Tile {
  static constexpr int kChunks = kHeadDim / 8;         // 16 bytes each, of a row
  static constexpr int kKeys = 2048 / kHeadDim;        // of a tile
  static constexpr int kBytes = kKeys * kHeadDim * 2;  // of its keys, and of its values
  static constexpr int kBlockBytes = kWarps * kStages * 2 * kBytes;
};

using Arguments = AttendArguments<__nv_bfloat16>;

// 16 bytes to shared memory, or zeros.
__device__ __forceinline__ void CopyChunk(uint32_t to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0));
}
__device__ __forceinline__ void EndCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8x8 matrices, whose rows' addresses the lanes have: lane 8 m + r that of row r of matrix m.
__device__ __forceinline__ void LoadMatrices(uint32_t at, uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void LoadTransposed(uint32_t at, uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(at)
               : "memory");
}

// c += a b, of 16x16 and 16x8.
__device__ __forceinline__ void MultiplyAdd(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t PackPair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Over the four lanes that have a row.
__device__ __forceinline__ float RowMax(float value) {
  value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, 1));
  return fmaxf(value, __shfl_xor_sync(kFullWarp, value, 2));
}
__device__ __forceinline__ float RowSum(float value) {
  value += __shfl_xor_sync(kFullWarp, value, 1);
  return value + __shfl_xor_sync(kFullWarp, value, 2);
}

// The tiles of one warp, of one key/value head of one sequence.
template <int kHeadDim>
struct TileReader {
  using Shape = Tile<kHeadDim>;
  const Arguments& args;
  const int32_t* pages;
  uint32_t shared;  // of this warp: kStages times keys and values
  int kv_head, first_key, keys;
  int turn, turns;  // it takes the tiles turn, turn + turns, ...
  int lane;

  __device__ int Base(int tile) const { return first_key + (turn + tile * turns) * Shape::kKeys; }
  __device__ uint32_t KeysOf(int tile) const { return shared + (tile % kStages) * 2 * Shape::kBytes; }
  __device__ uint32_t ValuesOf(int tile) const { return KeysOf(tile) + Shape::kBytes; }

  __device__ void Begin(int tile) const {
    const int base = Base(tile);
    // Each lane looks up where one key lies.
    const int own = base + lane % Shape::kKeys;
    int64_t own_offset = 0;
    if (own < keys) {
      const int page = own / args.page_size, entry = own - page * args.page_size;
      own_offset =
          pages[page] * args.k_page_stride + (static_cast<int64_t>(entry) * args.kv_heads + kv_head) * kHeadDim;
    }
#pragma unroll
    for (int i = 0; i < Shape::kKeys * Shape::kChunks / 32; ++i) {
      const int place = lane + 32 * i;
      const int row = place / Shape::kChunks, chunk = place % Shape::kChunks;
      const int64_t offset = __shfl_sync(kFullWarp, own_offset, row) + chunk * 8;
      const uint32_t to = (row * Shape::kChunks + (chunk ^ (row & 7))) * 16;
      const bool exists = base + row < keys;
      CopyChunk(KeysOf(tile) + to, args.k_cache + offset, exists);
      CopyChunk(ValuesOf(tile) + to, args.v_cache + offset, exists);
    }
  }
};

// kBothHalves: the block has more than 8 heads; else the lower 8 rows are nobody's.
template <int kHeadDim, bool kBothHalves>
__global__ void __launch_bounds__(32 * kWarps, 3) AttendTensorCores(const Arguments args) {
  using Shape = Tile<kHeadDim>;
  constexpr int kHalves = kBothHalves ? 2 : 1;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float tops[kWarps][kRows], sums[kWarps][kRows];
  const int token = blockIdx.x, kv_head = blockIdx.y;
  const int sequence = args.sequences[token];
  if (sequence < 0) return;
  const cooperative_groups::cluster_group parts = cooperative_groups::this_cluster();
  const int part = static_cast<int>(parts.block_rank()), part_count = static_cast<int>(parts.num_blocks());
  const int head_group = static_cast<int>(blockIdx.z) / part_count;
  const int first_head = kv_head * args.group + head_group * kRows;
  const int heads = min(kRows, args.group - head_group * kRows);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = lane / 4, column = lane % 4 * 2;  // of the fragments

  uint32_t q[kHeadDim / 16][4];
  const __nv_bfloat16* own_q = args.q + token * args.q_stride + static_cast<int64_t>(first_head) * kHeadDim;
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int head = row + (i % 2) * 8;
      const int at = head * kHeadDim + 16 * k + (i / 2) * 8 + column;
      q[k][i] = head < heads ? *reinterpret_cast<const uint32_t*>(own_q + at) : 0u;
    }
  }

  const int keys = args.positions[token] + 1;
  const int first_key = args.window > 0 ? max(0, keys - args.window) : 0;
  const int all_tiles = (keys - first_key + Shape::kKeys - 1) / Shape::kKeys;
  const int turn = part * kWarps + warp, turns = part_count * kWarps;
  const int tiles = all_tiles > turn ? (all_tiles - turn + turns - 1) / turns : 0;
  const TileReader<kHeadDim> reader = {
      .args = args,
      .pages = args.table + sequence * args.table_stride,
      .shared = static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + warp * kStages * 2 * Shape::kBytes,
      .kv_head = kv_head,
      .first_key = first_key,
      .keys = keys,
      .turn = turn,
      .turns = turns,
      .lane = lane};

  float top[kHalves], sum[kHalves], output[kHeadDim / 8][4];
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    top[half] = -CUDART_INF_F;
    sum[half] = 0.0f;
  }
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) output[n][i] = 0.0f;
  }

#pragma unroll
  for (int tile = 0; tile < kStages - 1; ++tile) {
    if (tile < tiles) reader.Begin(tile);
    EndCopies();
  }
  const int matrix = lane / 8, matrix_row = lane % 8;
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + kStages - 1 < tiles) reader.Begin(tile + kStages - 1);
    EndCopies();
    AwaitCopies<kStages - 1>();
    __syncwarp();

    float scores[Shape::kKeys / 8][4];
#pragma unroll
    for (int n = 0; n < Shape::kKeys / 8; n += 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = scores[n + 1][i] = 0.0f;
      // Keys n and n + 8, and of each the two halves of 16 elements.
      const int key = n * 8 + matrix / 2 * 8 + matrix_row;
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        uint32_t b[4];
        const int chunk = 2 * k + matrix % 2;
        LoadMatrices(reader.KeysOf(tile) + (key * Shape::kChunks + (chunk ^ (key & 7))) * 16, b);
        MultiplyAdd(q[k], b[0], b[1], scores[n]);
        MultiplyAdd(q[k], b[2], b[3], scores[n + 1]);
      }
    }

    const int base = reader.Base(tile) + column;
    float factor[kHalves];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      float highest = top[half];
#pragma unroll
      for (int n = 0; n < Shape::kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[n][2 * half + i];
          score = base + n * 8 + i < keys ? score * args.scale : -CUDART_INF_F;
          highest = fmaxf(highest, score);
        }
      }
      highest = RowMax(highest);
      factor[half] = exp2f(top[half] - highest);
      top[half] = highest;
      float added = 0.0f;
#pragma unroll
      for (int n = 0; n < Shape::kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[n][2 * half + i];
          score = exp2f(score - highest);  // 0 where there is no key
          added += score;
        }
      }
      sum[half] = sum[half] * factor[half] + added;  // of this lane's keys; the row's at the end
    }
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        output[n][2 * half] *= factor[half];
        output[n][2 * half + 1] *= factor[half];
      }
    }
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 16; ++j) {
      const float(&left)[4] = scores[2 * j];
      const float(&right)[4] = scores[2 * j + 1];
      const uint32_t weights[4] = {PackPair(left[0], left[1]), kBothHalves ? PackPair(left[2], left[3]) : 0u,
                                   PackPair(right[0], right[1]), kBothHalves ? PackPair(right[2], right[3]) : 0u};
      const int key = j * 16 + matrix % 2 * 8 + matrix_row;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n += 2) {
        uint32_t b[4];
        const int chunk = n + matrix / 2;
        LoadTransposed(reader.ValuesOf(tile) + (key * Shape::kChunks + (chunk ^ (key & 7))) * 16, b);
        MultiplyAdd(weights, b[0], b[1], output[n]);
        MultiplyAdd(weights, b[2], b[3], output[n + 1]);
      }
    }
    __syncwarp();  // the stage is read before it is written again
  }
  AwaitCopies<0>();
  __syncthreads();  // no warp's tiles are needed any more: outputs take their place
  float* const outputs = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const float whole = RowSum(sum[half]);
    const int head = row + half * 8;
    if (lane % 4 == 0) {
      tops[warp][head] = top[half];
      sums[warp][head] = whole;
    }
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      *reinterpret_cast<float2*>(outputs + (warp * kRows + head) * kHeadDim + n * 8 + column) =
          make_float2(output[n][2 * half], output[n][2 * half + 1]);
    }
  }
  parts.sync();
  // The blocks of a cluster share the elements that all of them have a part of.
  for (int i = part * 32 * kWarps + threadIdx.x; i < heads * kHeadDim; i += turns * 32) {
    const int h = i / kHeadDim, d = i % kHeadDim;
    float highest = -CUDART_INF_F;
    for (int p = 0; p < part_count; ++p) {
      const float* of_part = parts.map_shared_rank(&tops[0][0], p);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) highest = fmaxf(highest, of_part[w * kRows + h]);
    }
    float weight = 0.0f, value = 0.0f;
    for (int p = 0; p < part_count; ++p) {
      const float* of_part = parts.map_shared_rank(&tops[0][0], p);
      const float* sums_of_part = parts.map_shared_rank(&sums[0][0], p);
      const float* outputs_of_part = parts.map_shared_rank(outputs, p);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float factor = exp2f(of_part[w * kRows + h] - highest);  // 0 for a warp without a key
        weight += factor * sums_of_part[w * kRows + h];
        value += factor * outputs_of_part[(w * kRows + h) * kHeadDim + d];
      }
    }
    args.out[token * args.out_stride + static_cast<int64_t>(first_head + h) * kHeadDim + d] =
        __float2bfloat16_rn(value / weight);
  }
  parts.sync();  // the others may still read what lies here
}

// Blocks that share the keys of a token: more where there are few tokens, so that all multiprocessors have work.
unsigned PartsFor(int64_t blocks) {
  constexpr int64_t kMostBlocks = 528;  // four for each multiprocessor of an H100
  unsigned parts = 8;                   // as many as a cluster may have on every GPU
  while (parts > 1 && blocks * parts > kMostBlocks) parts /= 2;
  return parts;
}

template <int kHeadDim, bool kBothHalves>
absl::Status Launch(const Arguments& args, int64_t tokens, cudaStream_t stream) {
  constexpr int kBytes = Tile<kHeadDim>::kBlockBytes;
  static_assert(kBytes >= kWarps * kRows * kHeadDim * 4, "the outputs of all warps take the place of their tiles");
  const auto kernel = AttendTensorCores<kHeadDim, kBothHalves>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  const int64_t head_groups = CeilDiv(args.group, kRows);
  const unsigned parts = PartsFor(tokens * args.kv_heads * head_groups);
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = parts;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(tokens), static_cast<unsigned>(args.kv_heads),
                        static_cast<unsigned>(head_groups) * parts);
  config.blockDim = dim3(32 * kWarps);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, args);
  return LaunchStatus(kKernel);
}

template <int kHeadDim>
absl::Status Launch(const Arguments& args, int64_t tokens, cudaStream_t stream) {
  return args.group > 8 ? Launch<kHeadDim, true>(args, tokens, stream) : Launch<kHeadDim, false>(args, tokens, stream);
}

}  // namespace

bool FitsTensorCores(const PagedAttention& args) {
  const int64_t head_dim = args.q.dim(2);
  return args.q.dtype == DType::kBFloat16 && (head_dim == 64 || head_dim == 128) && RowsStartAtPackets(args.k_cache) &&
         RowsStartAtPackets(args.v_cache) && args.k_cache.row_stride == args.v_cache.row_stride &&
         RowsStartAtPackets(args.q);
}

absl::Status ForwardOnTensorCores(const PagedAttention& args, Stream stream) {
  const Arguments arguments = ArgumentsOf<__nv_bfloat16>(args);
  const int64_t tokens = args.q.dim(0);
  return args.q.dim(2) == 64 ? Launch<64>(arguments, tokens, HandleOf(stream))
                             : Launch<128>(arguments, tokens, HandleOf(stream));
}

}  // namespace sluice::kernels::cuda
