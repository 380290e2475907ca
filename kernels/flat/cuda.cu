// Flat arrays on the GPU: each element read once, or written once, or both; bound by memory.
#include <algorithm>
#include <bit>

#include "common/status_macros.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/flat/backends.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Sums: a fixed number of blocks, whatever the GPU, so that their order depends on N only. Four of them on each of an
// H200's 132 multiprocessors have 64 KiB of loads in flight there, twice what its memory needs.
constexpr int kSumBlocks = 528;
constexpr int kSumLoads = 4;  // packets in flight a thread

struct Square {
  __device__ static double Of(float value) { return static_cast<double>(value) * value; }
};
struct Value {
  __device__ static double Of(float value) { return value; }
};

// As LoadStreaming, from anywhere. The order of a sum is that of its packets even where they are not aligned.
template <typename T>
__device__ __forceinline__ Packet<T> LoadPacket(const T* at, bool aligned) {
  if (aligned) return LoadStreaming(at);
  Packet<T> packet;
#pragma unroll
  for (int i = 0; i < Packet<T>::kSize; ++i) packet.v[i] = ToFloat(at[i]);
  return packet;
}

template <typename T, typename Term>
__global__ void __launch_bounds__(kThreads, 4) PartialSums(const T* x, int64_t count, bool aligned, double* partials) {
  constexpr int kSize = Packet<T>::kSize;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t packets = count / kSize;
  double sum = 0.0;
  int64_t packet = thread;
  for (; packet + (kSumLoads - 1) * stride < packets; packet += kSumLoads * stride) {
    Packet<T> loaded[kSumLoads];
#pragma unroll
    for (int i = 0; i < kSumLoads; ++i) loaded[i] = LoadPacket(x + (packet + i * stride) * kSize, aligned);
#pragma unroll
    for (int i = 0; i < kSumLoads; ++i) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) sum += Term::Of(loaded[i].v[j]);
    }
  }
  for (; packet < packets; packet += stride) {
    const Packet<T> loaded = LoadPacket(x + packet * kSize, aligned);
#pragma unroll
    for (int j = 0; j < kSize; ++j) sum += Term::Of(loaded.v[j]);
  }
  for (int64_t i = packets * kSize + thread; i < count; i += stride) sum += Term::Of(ToFloat(x[i]));
  __shared__ double shared[32];
  sum = BlockSum(sum, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// sum = (keep ? sum : 0) + factor * (sum of the partials). One block.
__global__ void __launch_bounds__(kThreads)
    FinishSum(const double* partials, int count, double factor, bool keep, double* sum) {
  double value = 0.0;
  for (int i = threadIdx.x; i < count; i += kThreads) value += partials[i];
  __shared__ double shared[32];
  value = BlockSum(value, shared);
  if (threadIdx.x == 0) *sum = (keep ? *sum : 0.0) + factor * value;
}

template <typename Term, typename T>
absl::Status Sum(std::string_view kernel, const T* x, int64_t count, double factor, bool keep, TensorView sum,
                 Stream stream) {
  ASSIGN_OR_RETURN(const Workspace workspace, Workspace::Take(kernel, stream, kSumBlocks * sizeof(double)));
  auto* partials = workspace.at<double>(0);
  // Small arrays: no block without work.
  const int64_t per_block = int64_t{kThreads} * Packet<T>::kSize;
  const int blocks = static_cast<int>(std::clamp<int64_t>((count + per_block - 1) / per_block, 1, kSumBlocks));
  const bool aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  PartialSums<T, Term><<<blocks, kThreads, 0, HandleOf(stream)>>>(x, count, aligned, partials);
  FinishSum<<<1, kThreads, 0, HandleOf(stream)>>>(partials, blocks, factor, keep, sum.as<double>());
  return LaunchStatus(kernel);
}

// Element-wise kernels: a thread has kPackets packets, a block's width apart.
constexpr int kPackets = 4;

unsigned BlocksFor(int64_t packets) {
  constexpr int64_t kPerBlock = int64_t{kThreads} * kPackets;
  return static_cast<unsigned>((packets + kPerBlock - 1) / kPerBlock);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) FillKernel(T* x, int64_t count, bool aligned, T value) {
  constexpr int kSize = 16 / sizeof(T);
  union {
    uint4 raw;
    T values[kSize];
  } packet;
#pragma unroll
  for (int j = 0; j < kSize; ++j) packet.values[j] = value;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kPackets + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kPackets; ++i) {
    const int64_t at = (first + i * kThreads) * kSize;
    if (aligned && at + kSize <= count) {
      *reinterpret_cast<uint4*>(x + at) = packet.raw;
    } else {
      for (int j = 0; j < kSize && at + j < count; ++j) x[at + j] = value;
    }
  }
}

// Eight elements at a time: 16 bytes of bf16 and 32 of fp32.
template <typename From, typename To>
__global__ void __launch_bounds__(kThreads) CastKernel(const From* from, To* to, int64_t count, bool aligned) {
  constexpr int kGroup = 8;
  constexpr int kLoads = kGroup / Packet<From>::kSize;
  constexpr int kStores = kGroup / Packet<To>::kSize;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kPackets + threadIdx.x;
  Packet<From> loaded[kPackets][kLoads];
#pragma unroll
  for (int i = 0; i < kPackets; ++i) {
    const int64_t at = (first + i * kThreads) * kGroup;
    if (!aligned || at + kGroup > count) continue;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) loaded[i][j] = LoadStreaming(from + at + j * Packet<From>::kSize);
  }
#pragma unroll
  for (int i = 0; i < kPackets; ++i) {
    const int64_t at = (first + i * kThreads) * kGroup;
    if (aligned && at + kGroup <= count) {
#pragma unroll
      for (int j = 0; j < kStores; ++j) {
        Packet<To> packet;
#pragma unroll
        for (int k = 0; k < Packet<To>::kSize; ++k) {
          const int element = j * Packet<To>::kSize + k;
          packet.v[k] = loaded[i][element / Packet<From>::kSize].v[element % Packet<From>::kSize];
        }
        Store(to + at + j * Packet<To>::kSize, packet);
      }
    } else {
      for (int j = 0; j < kGroup && at + j < count; ++j) to[at + j] = FromFloat<To>(ToFloat(from[at + j]));
    }
  }
}

template <typename T>
void LaunchFill(TensorView x, T value, Stream stream) {
  constexpr int64_t kSize = 16 / sizeof(T);
  const int64_t count = x.elements();
  const bool aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  FillKernel<T><<<BlocksFor((count + kSize - 1) / kSize), kThreads, 0, HandleOf(stream)>>>(static_cast<T*>(x.data),
                                                                                           count, aligned, value);
}

}  // namespace

absl::Status SumOfSquares(ConstTensorView x, TensorView sum, Stream stream) {
  return VisitFloating(x.dtype, [&](auto zero) {
    using T = DeviceType<decltype(zero)>;
    return Sum<Square>("sum_of_squares", static_cast<const T*>(x.data), x.elements(), 1.0, false, sum, stream);
  });
}

absl::Status AddSum(ConstTensorView x, double factor, TensorView sum, Stream stream) {
  return Sum<Value>("add_sum", x.as<float>(), x.elements(), factor, true, sum, stream);
}

absl::Status Fill(TensorView x, double value, Stream stream) {
  if (x.elements() == 0) return absl::OkStatus();
  if (std::bit_cast<uint64_t>(value) == 0) {
    cudaMemsetAsync(x.data, 0, static_cast<size_t>(x.bytes()), HandleOf(stream));
  } else if (x.dtype == DType::kFloat64) {
    LaunchFill(x, value, stream);
  } else if (x.dtype == DType::kFloat32) {
    LaunchFill(x, static_cast<float>(value), stream);
  } else {
    LaunchFill(x, BFloat16(static_cast<float>(value)).bits, stream);
  }
  return LaunchStatus("fill");
}

absl::Status Cast(ConstTensorView from, TensorView to, Stream stream) {
  const int64_t count = from.elements();
  if (count == 0) return absl::OkStatus();
  if (from.dtype == to.dtype) {
    cudaMemcpyAsync(to.data, from.data, static_cast<size_t>(to.bytes()), cudaMemcpyDeviceToDevice, HandleOf(stream));
    return LaunchStatus("cast");
  }
  const bool aligned =
      reinterpret_cast<uintptr_t>(from.data) % 16 == 0 && reinterpret_cast<uintptr_t>(to.data) % 16 == 0;
  const unsigned blocks = BlocksFor((count + 7) / 8);
  if (from.dtype == DType::kFloat32) {
    CastKernel<<<blocks, kThreads, 0, HandleOf(stream)>>>(from.as<float>(), static_cast<__nv_bfloat16*>(to.data), count,
                                                          aligned);
  } else {
    CastKernel<<<blocks, kThreads, 0, HandleOf(stream)>>>(static_cast<const __nv_bfloat16*>(from.data), to.as<float>(),
                                                          count, aligned);
  }
  return LaunchStatus("cast");
}

}  // namespace sluice::kernels::cuda
