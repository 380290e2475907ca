#include <algorithm>

#include "common/status_macros.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/rope/backends.h"
#include "kernels/visit_dtype.h"

// Every element of the packed projection is read once and written once; what a token's heads share (its angles, the
// norms' weights) comes from L1, because a block works on neighbouring heads. The unit of work is a pair of packets: 16
// bytes of a head's first half and the 16 bytes of its second half that they are rotated with. Neighbouring lanes have
// neighbouring pairs, so a group of D / 2 / (values of a packet) lanes has a head; with norms this group is a power of
// two, within a warp, and sums by shuffles. Other head sizes take a path with one warp to a head and no packets.

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// The heads of one token, in their packed order: queries, keys, values.
struct Heads {
  int q, kv, dim;

  __host__ __device__ int all() const { return q + 2 * kv; }
};

template <int kWidth>
__device__ __forceinline__ unsigned PairsOfHead(const Heads& heads) {
  return static_cast<unsigned>(heads.dim / 2 / kWidth);
}

// Where a head lies in the arrays of its kind.
enum class Kind : uint8_t { kQuery, kKey, kValue };

struct HeadPlace {
  Kind kind;
  int64_t row;  // in [T * heads of the kind, D]
};

__device__ __forceinline__ HeadPlace PlaceOf(int64_t token, int head, const Heads& heads) {
  if (head < heads.q) return {Kind::kQuery, token * heads.q + head};
  if (head < heads.q + heads.kv) return {Kind::kKey, token * heads.kv + (head - heads.q)};
  return {Kind::kValue, token * heads.kv + (head - heads.q - heads.kv)};
}

template <typename Pointer>
__device__ __forceinline__ Pointer Select(Kind kind, Pointer query, Pointer key, Pointer value) {
  return kind == Kind::kQuery ? query : (kind == Kind::kKey ? key : value);
}

template <typename T>
struct ForwardArgs {
  Heads heads;
  int64_t tokens = 0;
  int rounds = 1;  // of kThreads pairs, of a block
  const T* qkv = nullptr;
  const float* cos_sin = nullptr;
  const T* q_norm = nullptr;  // null: no norms
  const T* k_norm = nullptr;
  float eps = 0;
  float* q_rstd = nullptr;
  float* k_rstd = nullptr;
  T* q = nullptr;
  T* k = nullptr;
  T* v = nullptr;
};

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

// The pairs of one block, rounds * kThreads neighbours, counted from the first pair of `first_token`: only this token
// takes a 64-bit division.
struct Share {
  int64_t first_token;
  unsigned begin, end;

  __device__ __forceinline__ Share(int rounds, int64_t tokens, unsigned pairs_of_token) {
    const int64_t size = static_cast<int64_t>(rounds) * kThreads;
    const int64_t first_pair = blockIdx.x * size;
    first_token = first_pair / pairs_of_token;
    begin = static_cast<unsigned>(first_pair - first_token * pairs_of_token);
    end = begin + static_cast<unsigned>(min(size, tokens * pairs_of_token - first_pair));
  }
};

// The pair of packets that a thread works on. Lanes beyond the block's last pair get that one, so that all lanes of a
// warp can shuffle, and must not write.
template <int kWidth>
struct Pair {
  int64_t token;
  int head, first;  // `first`: index in the head of the first packet's first value
  bool active;

  __device__ __forceinline__ Pair(unsigned at, const Share& share, const Heads& heads) {
    active = at < share.end;
    if (!active) at = share.end - 1;
    const unsigned pairs_of_head = PairsOfHead<kWidth>(heads);
    const unsigned head_of_share = at / pairs_of_head;
    const unsigned token_of_share = head_of_share / heads.all();
    token = share.first_token + token_of_share;
    head = static_cast<int>(head_of_share - token_of_share * heads.all());
    first = static_cast<int>(at - head_of_share * pairs_of_head) * kWidth;
  }
};

// Sums over groups of `size` neighbouring lanes. REQUIRES: a power of two, at most 32.
__device__ __forceinline__ float GroupSum(float value, int size) {
  for (int offset = size / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kFullWarp, value, offset);
  return value;
}

template <typename T, bool kNorms>
__global__ void __launch_bounds__(kThreads) ForwardKernel(ForwardArgs<T> args) {
  constexpr int kWidth = kPacketWidth<T>;
  const Heads heads = args.heads;
  const int half = heads.dim / 2;
  const Share share(args.rounds, args.tokens, PairsOfHead<kWidth>(heads) * heads.all());

  for (unsigned base = share.begin; base < share.end; base += kThreads) {
    const Pair<kWidth> pair(base + threadIdx.x, share, heads);
    const T* x = args.qkv + (pair.token * heads.all() + pair.head) * heads.dim + pair.first;
    const auto raw_a = LoadRaw<T, kWidth>(x);
    const auto raw_b = LoadRaw<T, kWidth>(x + half);
    const HeadPlace place = PlaceOf(pair.token, pair.head, heads);
    T* y = Select(place.kind, args.q, args.k, args.v) + place.row * heads.dim + pair.first;

    Values<kWidth> a = Unpack<T, kWidth>(raw_a);
    Values<kWidth> b = Unpack<T, kWidth>(raw_b);
    float rstd = 1.0f;
    if constexpr (kNorms) {
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum += a.v[i] * a.v[i] + b.v[i] * b.v[i];
      sum = GroupSum(sum, half / kWidth);
      rstd = 1.0f / sqrtf(sum / static_cast<float>(heads.dim) + args.eps);
    }
    if (!pair.active) continue;
    if (place.kind == Kind::kValue) {
      StoreRaw<T, kWidth>(y, raw_a);
      StoreRaw<T, kWidth>(y + half, raw_b);
      continue;
    }
    if constexpr (kNorms) {
      const T* weight = (place.kind == Kind::kQuery ? args.q_norm : args.k_norm) + pair.first;
      const Values<kWidth> weight_a = Unpack<T, kWidth>(LoadRaw<T, kWidth>(weight));
      const Values<kWidth> weight_b = Unpack<T, kWidth>(LoadRaw<T, kWidth>(weight + half));
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        a.v[i] *= rstd * weight_a.v[i];
        b.v[i] *= rstd * weight_b.v[i];
      }
      if (pair.first == 0) (place.kind == Kind::kQuery ? args.q_rstd : args.k_rstd)[place.row] = rstd;
    }
    const float* cos_sin = args.cos_sin + pair.token * heads.dim + pair.first;
    const Values<kWidth> cosines = LoadFloats<kWidth>(cos_sin);
    const Values<kWidth> sines = LoadFloats<kWidth>(cos_sin + half);
    Values<kWidth> rotated_a, rotated_b;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      rotated_a.v[i] = a.v[i] * cosines.v[i] - b.v[i] * sines.v[i];
      rotated_b.v[i] = b.v[i] * cosines.v[i] + a.v[i] * sines.v[i];
    }
    StoreRaw<T, kWidth>(y, Pack<T>(rotated_a));
    StoreRaw<T, kWidth>(y + half, Pack<T>(rotated_b));
  }
}

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

// The path for any even head size: blocks of one warp take heads b, b + blocks, ... of all tokens. A lane reads only
// elements that it alone writes.
template <typename T>
__global__ void __launch_bounds__(32) PlainForwardKernel(ForwardArgs<T> args) {
  const Heads heads = args.heads;
  const int half = heads.dim / 2;
  for (int64_t item = blockIdx.x; item < args.tokens * heads.all(); item += gridDim.x) {
    const int64_t token = item / heads.all();
    const HeadPlace place = PlaceOf(token, static_cast<int>(item - token * heads.all()), heads);
    const T* x = args.qkv + item * heads.dim;
    T* y = Select(place.kind, args.q, args.k, args.v) + place.row * heads.dim;
    if (place.kind == Kind::kValue) {
      for (int i = threadIdx.x; i < heads.dim; i += 32) y[i] = x[i];
      continue;
    }
    const T* weight = place.kind == Kind::kQuery ? args.q_norm : args.k_norm;
    float rstd = 1.0f;
    if (weight != nullptr) {
      float sum = 0.0f;
      for (int i = threadIdx.x; i < heads.dim; i += 32) sum += ToFloat(x[i]) * ToFloat(x[i]);
      rstd = 1.0f / sqrtf(WarpSum(sum) / static_cast<float>(heads.dim) + args.eps);
      if (threadIdx.x == 0) (place.kind == Kind::kQuery ? args.q_rstd : args.k_rstd)[place.row] = rstd;
    }
    const float* cos_sin = args.cos_sin + token * heads.dim;
    for (int i = threadIdx.x; i < half; i += 32) {
      const float a = ToFloat(x[i]) * (weight == nullptr ? 1.0f : rstd * ToFloat(weight[i]));
      const float b = ToFloat(x[i + half]) * (weight == nullptr ? 1.0f : rstd * ToFloat(weight[i + half]));
      y[i] = FromFloat<T>(a * cos_sin[i] - b * cos_sin[i + half]);
      y[i + half] = FromFloat<T>(b * cos_sin[i] + a * cos_sin[i + half]);
    }
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

__global__ void __launch_bounds__(kThreads) TableKernel(const int32_t* positions, const float* inv_freq, float scaling,
                                                        int half, int64_t count, float* cos_sin) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const int64_t token = at / half;
  const int i = static_cast<int>(at - token * half);
  const float angle = __fmul_rn(static_cast<float>(positions[token]), inv_freq[i]);
  float sine, cosine;
  sincosf(angle, &sine, &cosine);
  cos_sin[token * 2 * half + i] = cosine * scaling;
  cos_sin[token * 2 * half + half + i] = sine * scaling;
}

bool StartsAtPacket(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// Whether the halves of a head are packets, and with norms also a power-of-two group of lanes of one warp.
bool HeadIsPackets(int head_dim, int width, bool norms) {
  if (head_dim % (2 * width) != 0) return false;
  const int group = head_dim / 2 / width;
  return !norms || (group <= 32 && (group & (group - 1)) == 0);
}

int64_t RoundsOf(int64_t tokens, const Heads& heads, int width) {
  return CeilDiv(tokens * heads.all() * (heads.dim / 2 / width), kThreads);
}

constexpr int kPlainBlocksPerProcessor = 16;
constexpr int kNormBlocksPerProcessor = 2;  // one wave, so that there are few partial sums

}  // namespace

absl::Status Run(const RotaryTable& args, Stream stream) {
  const int64_t half = args.inv_freq.dim(0);
  const int64_t count = args.positions.dim(0) * half;
  if (count == 0) return absl::OkStatus();
  TableKernel<<<static_cast<unsigned>(CeilDiv(count, kThreads)), kThreads, 0, HandleOf(stream)>>>(
      args.positions.as<int32_t>(), args.inv_freq.as<float>(), args.attention_scaling, static_cast<int>(half), count,
      args.cos_sin.as<float>());
  return LaunchStatus("rotary_table");
}

absl::Status Forward(const RopeForward& args, Stream stream) {
  const Heads heads = {.q = static_cast<int>(args.q.dim(1)),
                       .kv = static_cast<int>(args.k.dim(1)),
                       .dim = static_cast<int>(args.q.dim(2))};
  const int64_t tokens = args.q.dim(0);
  if (args.qkv.elements() == 0) return absl::OkStatus();
  const bool norms = !args.q_norm.empty();
  const cudaStream_t handle = HandleOf(stream);
  VisitFloating(args.qkv.dtype, [&](auto zero) {
    using T = DeviceType<decltype(zero)>;
    const ForwardArgs<T> kernel_args = {.heads = heads,
                                        .tokens = tokens,
                                        .qkv = static_cast<const T*>(args.qkv.data),
                                        .cos_sin = args.cos_sin.as<float>(),
                                        .q_norm = static_cast<const T*>(args.q_norm.data),
                                        .k_norm = static_cast<const T*>(args.k_norm.data),
                                        .eps = args.eps,
                                        .q_rstd = args.q_rstd.as<float>(),
                                        .k_rstd = args.k_rstd.as<float>(),
                                        .q = static_cast<T*>(args.q.data),
                                        .k = static_cast<T*>(args.k.data),
                                        .v = static_cast<T*>(args.v.data)};
    const bool aligned = StartsAtPacket(args.qkv.data) && StartsAtPacket(args.cos_sin.data) &&
                         StartsAtPacket(args.q_norm.data) && StartsAtPacket(args.k_norm.data) &&
                         StartsAtPacket(args.q.data) && StartsAtPacket(args.k.data) && StartsAtPacket(args.v.data);
    if (!aligned || !HeadIsPackets(heads.dim, kPacketWidth<T>, norms)) {
      const int64_t blocks = std::min<int64_t>(tokens * heads.all(), MultiprocessorCount() * kPlainBlocksPerProcessor);
      PlainForwardKernel<T><<<static_cast<unsigned>(blocks), 32, 0, handle>>>(kernel_args);
      return;
    }
    const unsigned blocks = static_cast<unsigned>(RoundsOf(tokens, heads, kPacketWidth<T>));
    if (norms) {
      ForwardKernel<T, true><<<blocks, kThreads, 0, handle>>>(kernel_args);
    } else {
      ForwardKernel<T, false><<<blocks, kThreads, 0, handle>>>(kernel_args);
    }
  });
  return LaunchStatus("rope");
}

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
