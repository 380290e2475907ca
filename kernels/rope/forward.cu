#include <algorithm>

#include "kernels/cuda/workspace.h"
#include "kernels/rope/backends.h"
#include "kernels/rope/heads.cuh"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cuda {
namespace {

using namespace rope;  // what is shared with the other direction

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

}  // namespace

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

}  // namespace sluice::kernels::cuda
