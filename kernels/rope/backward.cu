#include <algorithm>

#include "common/status_macros.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/rope/backends.h"
#include "kernels/rope/heads.cuh"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cuda {
namespace {

using namespace rope;  // what is shared with the other direction

template <typename T>
struct BackwardArgs {
  Heads heads;
  int64_t tokens = 0;
  int rounds = 1;  // of kThreads pairs, of a block
  const T* dq = nullptr;
  const T* dk = nullptr;
  const T* dv = nullptr;
  const float* cos_sin = nullptr;
  const T* qkv = nullptr;
  const T* q_norm = nullptr;  // null: no norms
  const T* k_norm = nullptr;
  const float* q_rstd = nullptr;
  const float* k_rstd = nullptr;
  T* dqkv = nullptr;
  float* partials = nullptr;  // [blocks, 2 D]: dq_norm, dk_norm
};

// A thread's sums for the norms' weights: of the columns of its pair, which is the same in all its rounds, because a
// round of kThreads pairs is a whole number of heads.
template <int kWidth>
struct NormSums {
  float q[2][kWidth] = {}, k[2][kWidth] = {};
};

// Writes a block's sums [2, D], the threads' added in a fixed order.
template <int kWidth>
__device__ __forceinline__ void StoreNormSums(NormSums<kWidth>& sums, int head_dim, float* to) {
  constexpr int kWarps = kThreads / 32;
  constexpr int kMaxDim = 2 * 32 * kWidth;
  __shared__ float shared[kWarps][2][kMaxDim];
  const int half = head_dim / 2;
  const int group = half / kWidth;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float q = sums.q[part][i];
      float k = sums.k[part][i];
      for (int offset = 16; offset >= group; offset /= 2) {
        q += __shfl_xor_sync(kFullWarp, q, offset);
        k += __shfl_xor_sync(kFullWarp, k, offset);
      }
      if (lane < group) {
        shared[warp][0][part * half + lane * kWidth + i] = q;
        shared[warp][1][part * half + lane * kWidth + i] = k;
      }
    }
  }
  __syncthreads();
  for (int column = threadIdx.x; column < 2 * head_dim; column += kThreads) {
    const int norm = column / head_dim;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += shared[w][norm][column - norm * head_dim];
    to[column] = sum;
  }
}

template <typename T, bool kNorms>
__global__ void __launch_bounds__(kThreads) BackwardKernel(BackwardArgs<T> args) {
  constexpr int kWidth = kPacketWidth<T>;
  const Heads heads = args.heads;
  const int half = heads.dim / 2;
  const Share share(args.rounds, args.tokens, PairsOfHead<kWidth>(heads) * heads.all());

  NormSums<kWidth> sums;
  for (unsigned base = share.begin; base < share.end; base += kThreads) {
    const Pair<kWidth> pair(base + threadIdx.x, share, heads);
    const HeadPlace place = PlaceOf(pair.token, pair.head, heads);
    const T* dy = Select(place.kind, args.dq, args.dk, args.dv) + place.row * heads.dim + pair.first;
    const int64_t at = (pair.token * heads.all() + pair.head) * heads.dim + pair.first;
    const bool rotates = place.kind != Kind::kValue;
    const auto raw_a = LoadRaw<T, kWidth>(dy);
    const auto raw_b = LoadRaw<T, kWidth>(dy + half);
    Raw<T, kWidth> raw_x_a = {}, raw_x_b = {};
    if (kNorms && rotates) {
      raw_x_a = LoadRaw<T, kWidth>(args.qkv + at);
      raw_x_b = LoadRaw<T, kWidth>(args.qkv + at + half);
    }

    const float* cos_sin = args.cos_sin + pair.token * heads.dim + pair.first;
    const Values<kWidth> cosines = LoadFloats<kWidth>(cos_sin);
    const Values<kWidth> sines = LoadFloats<kWidth>(cos_sin + half);
    const Values<kWidth> dy_a = Unpack<T, kWidth>(raw_a);
    const Values<kWidth> dy_b = Unpack<T, kWidth>(raw_b);
    Values<kWidth> gradient_a, gradient_b;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      gradient_a.v[i] = dy_a.v[i] * cosines.v[i] + dy_b.v[i] * sines.v[i];
      gradient_b.v[i] = dy_b.v[i] * cosines.v[i] - dy_a.v[i] * sines.v[i];
    }
    if constexpr (kNorms) {
      // With n = x * rstd: dx = rstd * (g * weight - n * mean(g * weight * n)), dweight += g * n. Values' lanes take
      // part in the group's sum without using it.
      const bool is_query = place.kind == Kind::kQuery;
      const T* weight = (is_query ? args.q_norm : args.k_norm) + pair.first;
      const float rstd = rotates ? (is_query ? args.q_rstd : args.k_rstd)[place.row] : 0.0f;
      const Values<kWidth> weight_a = Unpack<T, kWidth>(LoadRaw<T, kWidth>(weight));
      const Values<kWidth> weight_b = Unpack<T, kWidth>(LoadRaw<T, kWidth>(weight + half));
      const Values<kWidth> x_a = Unpack<T, kWidth>(raw_x_a);
      const Values<kWidth> x_b = Unpack<T, kWidth>(raw_x_b);
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        sum += gradient_a.v[i] * weight_a.v[i] * x_a.v[i] + gradient_b.v[i] * weight_b.v[i] * x_b.v[i];
      }
      sum = GroupSum(sum, half / kWidth);
      const float projection = sum * rstd * rstd / static_cast<float>(heads.dim);
      if (pair.active && rotates) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const float add_a = gradient_a.v[i] * x_a.v[i] * rstd;
          const float add_b = gradient_b.v[i] * x_b.v[i] * rstd;
          if (is_query) {
            sums.q[0][i] += add_a;
            sums.q[1][i] += add_b;
          } else {
            sums.k[0][i] += add_a;
            sums.k[1][i] += add_b;
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        gradient_a.v[i] = rstd * (gradient_a.v[i] * weight_a.v[i] - x_a.v[i] * projection);
        gradient_b.v[i] = rstd * (gradient_b.v[i] * weight_b.v[i] - x_b.v[i] * projection);
      }
    }
    if (!pair.active) continue;
    StoreRaw<T, kWidth>(args.dqkv + at, rotates ? Pack<T>(gradient_a) : raw_a);
    StoreRaw<T, kWidth>(args.dqkv + at + half, rotates ? Pack<T>(gradient_b) : raw_b);
  }
  if constexpr (kNorms) {
    StoreNormSums<kWidth>(sums, heads.dim, args.partials + static_cast<int64_t>(blockIdx.x) * 2 * heads.dim);
  }
}

template <typename T>
__global__ void __launch_bounds__(32) PlainBackwardKernel(BackwardArgs<T> args) {
  const Heads heads = args.heads;
  const int half = heads.dim / 2;
  const bool norms = args.q_norm != nullptr;
  float* partial = norms ? args.partials + static_cast<int64_t>(blockIdx.x) * 2 * heads.dim : nullptr;
  if (norms) {
    for (int i = threadIdx.x; i < half; i += 32) {
      partial[i] = partial[i + half] = partial[i + 2 * half] = partial[i + 3 * half] = 0.0f;
    }
  }
  for (int64_t item = blockIdx.x; item < args.tokens * heads.all(); item += gridDim.x) {
    const int64_t token = item / heads.all();
    const HeadPlace place = PlaceOf(token, static_cast<int>(item - token * heads.all()), heads);
    const T* dy = Select(place.kind, args.dq, args.dk, args.dv) + place.row * heads.dim;
    T* dx = args.dqkv + item * heads.dim;
    if (place.kind == Kind::kValue) {
      for (int i = threadIdx.x; i < heads.dim; i += 32) dx[i] = dy[i];
      continue;
    }
    const bool is_query = place.kind == Kind::kQuery;
    const float* cos_sin = args.cos_sin + token * heads.dim;
    const auto gradient_a = [&](int i) {
      return ToFloat(dy[i]) * cos_sin[i] + ToFloat(dy[i + half]) * cos_sin[i + half];
    };
    const auto gradient_b = [&](int i) {
      return ToFloat(dy[i + half]) * cos_sin[i] - ToFloat(dy[i]) * cos_sin[i + half];
    };
    if (!norms) {
      for (int i = threadIdx.x; i < half; i += 32) {
        dx[i] = FromFloat<T>(gradient_a(i));
        dx[i + half] = FromFloat<T>(gradient_b(i));
      }
      continue;
    }
    const T* x = args.qkv + item * heads.dim;
    const T* weight = is_query ? args.q_norm : args.k_norm;
    float* dweight = is_query ? partial : partial + heads.dim;
    const float rstd = (is_query ? args.q_rstd : args.k_rstd)[place.row];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < half; i += 32) {
      sum += gradient_a(i) * ToFloat(weight[i]) * ToFloat(x[i]) +
             gradient_b(i) * ToFloat(weight[i + half]) * ToFloat(x[i + half]);
    }
    const float projection = WarpSum(sum) * rstd * rstd / static_cast<float>(heads.dim);
    for (int i = threadIdx.x; i < half; i += 32) {
      const float x_a = ToFloat(x[i]);
      const float x_b = ToFloat(x[i + half]);
      dweight[i] += gradient_a(i) * x_a * rstd;
      dweight[i + half] += gradient_b(i) * x_b * rstd;
      dx[i] = FromFloat<T>(rstd * (gradient_a(i) * ToFloat(weight[i]) - x_a * projection));
      dx[i + half] = FromFloat<T>(rstd * (gradient_b(i) * ToFloat(weight[i + half]) - x_b * projection));
    }
  }
}

constexpr int kNormBlocksPerProcessor = 2;  // one wave, so that there are few partial sums

}  // namespace

absl::Status Backward(const RopeBackward& args, Stream stream) {
  const Heads heads = {.q = static_cast<int>(args.dq.dim(1)),
                       .kv = static_cast<int>(args.dk.dim(1)),
                       .dim = static_cast<int>(args.dq.dim(2))};
  const int64_t tokens = args.dq.dim(0);
  if (args.dqkv.elements() == 0) return absl::OkStatus();
  const bool norms = !args.q_norm.empty();
  const bool aligned = StartsAtPacket(args.dq.data) && StartsAtPacket(args.dk.data) && StartsAtPacket(args.dv.data) &&
                       StartsAtPacket(args.cos_sin.data) && StartsAtPacket(args.qkv.data) &&
                       StartsAtPacket(args.q_norm.data) && StartsAtPacket(args.k_norm.data) &&
                       StartsAtPacket(args.dqkv.data);
  const int width = static_cast<int>(16 / SizeOf(args.dq.dtype));
  const bool packets = aligned && HeadIsPackets(heads.dim, width, norms);
  const int64_t processors = MultiprocessorCount();
  const int64_t all_rounds = RoundsOf(tokens, heads, width);
  const int64_t rounds = norms ? CeilDiv(all_rounds, processors * kNormBlocksPerProcessor) : 1;
  const int64_t blocks =
      packets ? CeilDiv(all_rounds, rounds) : std::min(tokens * heads.all(), processors * kPlainBlocksPerProcessor);
  Workspace workspace;
  if (norms) {
    ASSIGN_OR_RETURN(workspace, Workspace::Take("rope", stream, blocks * 2 * heads.dim * 4));
  }
  float* partials = norms ? workspace.at<float>(0) : nullptr;
  const cudaStream_t handle = HandleOf(stream);
  VisitFloating(args.dq.dtype, [&](auto zero) {
    using T = DeviceType<decltype(zero)>;
    const BackwardArgs<T> kernel_args = {.heads = heads,
                                         .tokens = tokens,
                                         .rounds = static_cast<int>(rounds),
                                         .dq = static_cast<const T*>(args.dq.data),
                                         .dk = static_cast<const T*>(args.dk.data),
                                         .dv = static_cast<const T*>(args.dv.data),
                                         .cos_sin = args.cos_sin.as<float>(),
                                         .qkv = static_cast<const T*>(args.qkv.data),
                                         .q_norm = static_cast<const T*>(args.q_norm.data),
                                         .k_norm = static_cast<const T*>(args.k_norm.data),
                                         .q_rstd = args.q_rstd.as<float>(),
                                         .k_rstd = args.k_rstd.as<float>(),
                                         .dqkv = static_cast<T*>(args.dqkv.data),
                                         .partials = partials};
    const unsigned grid = static_cast<unsigned>(blocks);
    if (!packets) {
      PlainBackwardKernel<T><<<grid, 32, 0, handle>>>(kernel_args);
    } else if (norms) {
      BackwardKernel<T, true><<<grid, kThreads, 0, handle>>>(kernel_args);
    } else {
      BackwardKernel<T, false><<<grid, kThreads, 0, handle>>>(kernel_args);
    }
  });
  if (norms) {
    AddColumnSums({.partials = partials,
                   .parts = static_cast<int>(blocks),
                   .columns = 2 * heads.dim,
                   .out = args.dq_norm.as<float>(),
                   .split = heads.dim,
                   .rest = args.dk_norm.as<float>()},
                  handle);
  }
  return LaunchStatus("rope");
}

}  // namespace sluice::kernels::cuda
