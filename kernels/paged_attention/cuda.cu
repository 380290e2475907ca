// For whatever does not fit tensor_cores.cu.
//
// A block has one query token and up to eight of the query heads that share a key/value head, so each key and value is
// read once for all of them. Its warps take the keys in turns of 32. For scores a lane has one key; for the weighted
// values the lanes share the columns and every key is read by all. Each warp keeps a running maximum, sum and output
// (Milakov & Gimelshein 2018, online softmax); at the end the four are joined in the order of the warps, so a result is
// a function of the query and of what it sees.
#include <math_constants.h>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/paged_attention/arguments.cuh"
#include "kernels/paged_attention/backends.h"
#include "kernels/paged_attention/tensor_cores.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cuda {
namespace {

constexpr std::string_view kKernel = "paged_attention";
constexpr int kWarps = 4;
constexpr int kMostHeads = 8;      // of a block
constexpr int kMostHeadDim = 256;  // 32 lanes x 8 columns

template <typename T>
struct AppendArguments {
  const T* k;
  const T* v;
  int64_t k_stride, v_stride;
  const int32_t* slots;
  T* k_cache;
  T* v_cache;
  int64_t k_page_stride, v_page_stride;
  int page_size, width;  // width = Hkv * D
};

template <typename T>
__global__ void __launch_bounds__(128) AppendKernel(AppendArguments<T> args) {
  const int token = blockIdx.x;
  const int slot = args.slots[token];
  if (slot < 0) return;
  const int page = slot / args.page_size, entry = slot % args.page_size;
  T* k = args.k_cache + page * args.k_page_stride + static_cast<int64_t>(entry) * args.width;
  T* v = args.v_cache + page * args.v_page_stride + static_cast<int64_t>(entry) * args.width;
  for (int i = threadIdx.x; i < args.width; i += 128) {
    k[i] = args.k[token * args.k_stride + i];
    v[i] = args.v[token * args.v_stride + i];
  }
}

// One key's products with the block's queries.
template <typename T, int kHeads>
__device__ __forceinline__ void Dot(const T* key, const float (*q)[kMostHeadDim], int head_dim, bool packets,
                                    float (&scores)[kHeads]) {
#pragma unroll
  for (int h = 0; h < kHeads; ++h) scores[h] = 0.0f;
  if (packets) {
    constexpr int kWidth = kPacketWidth<T>;
    for (int d = 0; d < head_dim; d += kWidth) {
      const Values<kWidth> values = Unpack<T, kWidth>(LoadRaw<T, kWidth>(key + d));
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) scores[h] += q[h][d + i] * values.v[i];
      }
    }
    return;
  }
  for (int d = 0; d < head_dim; ++d) {
    const float value = ToFloat(key[d]);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) scores[h] += q[h][d] * value;
  }
}

// kColumns: columns of the head that a lane has in the weighted values.
template <typename T, int kHeads, int kColumns>
__global__ void __launch_bounds__(32 * kWarps) AttendKernel(AttendArguments<T> args) {
  __shared__ float q[kHeads][kMostHeadDim];
  __shared__ float tops[kWarps][kHeads], sums[kWarps][kHeads];
  __shared__ float outputs[kWarps][kHeads][32 * kColumns];
  const int token = blockIdx.x, kv_head = blockIdx.y;
  const int sequence = args.sequences[token];
  if (sequence < 0) return;
  const int first_head = kv_head * args.group + blockIdx.z * kHeads;
  const int heads = min(kHeads, args.group - static_cast<int>(blockIdx.z) * kHeads);
  for (int i = threadIdx.x; i < kHeads * args.head_dim; i += 32 * kWarps) {
    const int h = i / args.head_dim, d = i % args.head_dim;
    q[h][d] =
        h < heads ? ToFloat(args.q[token * args.q_stride + (first_head + h) * args.head_dim + d]) * args.scale : 0.0f;
  }
  __syncthreads();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int keys = args.positions[token] + 1;
  const int first_key = args.window > 0 ? max(0, keys - args.window) : 0;
  const int32_t* pages = args.table + sequence * args.table_stride;
  const int64_t row = static_cast<int64_t>(args.kv_heads) * args.head_dim;
  float top[kHeads], sum[kHeads], output[kHeads][kColumns];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    top[h] = -CUDART_INF_F;
    sum[h] = 0.0f;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) output[h][i] = 0.0f;
  }
  for (int base = first_key + 32 * warp; base < keys; base += 32 * kWarps) {
    const int key = base + lane;
    const bool seen = key < keys;
    int64_t page = 0, entry = 0;
    float scores[kHeads];
    if (seen) {
      page = pages[key / args.page_size];
      entry = (key % args.page_size) * row + kv_head * args.head_dim;
      Dot<T, kHeads>(args.k_cache + page * args.k_page_stride + entry, q, args.head_dim, args.packets, scores);
    }
    float weights[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float score = seen ? scores[h] : -CUDART_INF_F;
      const float higher = fmaxf(top[h], WarpMax(score));
      const float factor = exp2f(top[h] - higher);
      weights[h] = exp2f(score - higher);  // 0 where there is no key
      sum[h] = sum[h] * factor + WarpSum(weights[h]);
      top[h] = higher;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) output[h][i] *= factor;
    }
    const int64_t value_row = page * args.v_page_stride + entry;
    const int count = min(32, keys - base);
    for (int j = 0; j < count; ++j) {
      const T* value = args.v_cache + __shfl_sync(kFullWarp, value_row, j);
      float columns[kColumns];
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int d = lane + 32 * i;
        columns[i] = d < args.head_dim ? ToFloat(value[d]) : 0.0f;
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const float weight = __shfl_sync(kFullWarp, weights[h], j);
#pragma unroll
        for (int i = 0; i < kColumns; ++i) output[h][i] += weight * columns[i];
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (lane == 0) {
      tops[warp][h] = top[h];
      sums[warp][h] = sum[h];
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) outputs[warp][h][lane + 32 * i] = output[h][i];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < heads * args.head_dim; i += 32 * kWarps) {
    const int h = i / args.head_dim, d = i % args.head_dim;
    float highest = tops[0][h];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) highest = fmaxf(highest, tops[w][h]);
    float weight = 0.0f, value = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = exp2f(tops[w][h] - highest);  // 0 for a warp without a key
      weight += factor * sums[w][h];
      value += factor * outputs[w][h][d];
    }
    args.out[token * args.out_stride + (first_head + h) * args.head_dim + d] = FromFloat<T>(value / weight);
  }
}

template <typename T, int kHeads>
void Launch(const AttendArguments<T>& args, int64_t tokens, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(args.kv_heads),
                  static_cast<unsigned>(CeilDiv(args.group, kHeads)));
  const auto launch = [&](auto kernel) { kernel<<<grid, 32 * kWarps, 0, stream>>>(args); };
  if (args.head_dim <= 32) return launch(AttendKernel<T, kHeads, 1>);
  if (args.head_dim <= 64) return launch(AttendKernel<T, kHeads, 2>);
  if (args.head_dim <= 128) return launch(AttendKernel<T, kHeads, 4>);
  launch(AttendKernel<T, kHeads, 8>);
}

template <typename T>
void Launch(const AttendArguments<T>& args, int64_t tokens, cudaStream_t stream) {
  if (args.group == 1) return Launch<T, 1>(args, tokens, stream);
  if (args.group == 2) return Launch<T, 2>(args, tokens, stream);
  if (args.group <= 4) return Launch<T, 4>(args, tokens, stream);
  Launch<T, kMostHeads>(args, tokens, stream);
}

}  // namespace

absl::Status Run(const PagedAppend& args, Stream stream) {
  const int64_t tokens = args.k.dim(0);
  if (tokens == 0) return absl::OkStatus();
  return VisitFloating(args.k.dtype, [&](auto zero) {
    using T = DeviceType<decltype(zero)>;
    const AppendArguments<T> arguments = {.k = static_cast<const T*>(args.k.data),
                                          .v = static_cast<const T*>(args.v.data),
                                          .k_stride = args.k.row_stride,
                                          .v_stride = args.v.row_stride,
                                          .slots = args.slots.as<int32_t>(),
                                          .k_cache = static_cast<T*>(args.k_cache.data),
                                          .v_cache = static_cast<T*>(args.v_cache.data),
                                          .k_page_stride = args.k_cache.row_stride,
                                          .v_page_stride = args.v_cache.row_stride,
                                          .page_size = static_cast<int>(args.k_cache.dim(1)),
                                          .width = static_cast<int>(args.k.shape.row_elements())};
    AppendKernel<T><<<static_cast<unsigned>(tokens), 128, 0, HandleOf(stream)>>>(arguments);
    return LaunchStatus(kKernel);
  });
}

absl::Status Forward(const PagedAttention& args, Stream stream) {
  const int64_t tokens = args.q.dim(0);
  if (tokens == 0) return absl::OkStatus();
  if (FitsTensorCores(args)) return ForwardOnTensorCores(args, stream);
  return VisitFloating(args.q.dtype, [&](auto zero) {
    using T = DeviceType<decltype(zero)>;
    Launch<T>(ArgumentsOf<T>(args), tokens, HandleOf(stream));
    return LaunchStatus(kKernel);
  });
}

}  // namespace sluice::kernels::cuda
