#include "kernels/cross_entropy/logits.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "kernels/cross_entropy/softmax_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cuda {
namespace {

constexpr std::string_view kKernel = "cross_entropy";

template <typename T>
using Power = std::conditional_t<sizeof(T) == 2, ApproximatePowerOfE, ExactPowerOfE>;

template <typename T>
using Sums = SoftmaxSums<Power<T>>;

template <typename T>
__device__ __forceinline__ void WarpTotal(Sums<T>& sums) {
  sums.RaiseTop(WarpMax(sums.top));
  sums.exp = WarpSum(sums.exp);
  sums.weighted = WarpSum(sums.weighted);
}

// Every thread gets the sums over the block. REQUIRES: called once.
template <typename T, int kThreads>
__device__ __forceinline__ void BlockTotal(Sums<T>& sums) {
  constexpr int kWarps = kThreads / 32;
  __shared__ float top[kWarps], exp[kWarps], weighted[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  WarpTotal<T>(sums);
  if (lane == 0) {
    top[warp] = sums.top;
    exp[warp] = sums.exp;
    weighted[warp] = sums.weighted;
  }
  __syncthreads();
  sums = {};
  if (lane < kWarps) sums = {top[lane], exp[lane], weighted[lane]};
  WarpTotal<T>(sums);
}

template <typename T>
__device__ __forceinline__ void Unpack(uint4 raw, float* to) {
  const T* values = reinterpret_cast<const T*>(&raw);
#pragma unroll
  for (int i = 0; i < Packet<T>::kSize; ++i) to[i] = ToFloat(values[i]);
}

// The two numbers that make a row's dlogits: p (base - slope log p), less d_loss for the label.
struct Gradient {
  float logsumexp, base, slope;

  template <typename T>
  __device__ __forceinline__ float At(float logit) const {
    const float log_p = logit - logsumexp;
    return Power<T>::Of(log_p) * (base - slope * log_p);
  }
};

constexpr int kInFlight = 4;  // packets that a thread loads at once

template <typename T, LogitsTask kTask, int kThreads>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) RowKernel(LogitsRows args, int cached) {
  constexpr int kSize = Packet<T>::kSize;
  extern __shared__ uint4 cache[];
  T* logits = static_cast<T*>(args.logits) + blockIdx.x * args.stride;
  auto* packets_of_row = reinterpret_cast<uint4*>(logits);
  const int thread = threadIdx.x;
  if (static_cast<int>(blockIdx.x) >= args.rows) {
    for (int64_t i = thread; i < args.stride / kSize; i += kThreads) packets_of_row[i] = make_uint4(0, 0, 0, 0);
    return;
  }
  // A thread has the same packets and the same element of the rest in both passes, so it only overwrites what no one
  // else reads.
  const int packets = args.vocabulary / kSize;
  const int rest = packets * kSize + thread;
  const bool has_rest = rest < args.vocabulary;
  const int slot = args.slots[blockIdx.x];
  const int label = args.labels[slot];
  // A label out of range makes the row's log-probability NaN rather than the kernel read elsewhere.
  const bool valid = label >= 0 && label < args.vocabulary;
  const int owner = label < packets * kSize ? label / kSize % kThreads : label - packets * kSize;
  const bool owns_label = valid && thread == owner;
  const float label_logit = owns_label ? ToFloat(logits[label]) : 0.0f;

  Gradient gradient = {};
  if constexpr (kTask != LogitsTask::kGradient) {
    Sums<T> sums;
    int packet = thread;
    for (; packet + (kInFlight - 1) * kThreads < packets; packet += kInFlight * kThreads) {
      uint4 raw[kInFlight];
      float x[kInFlight * kSize];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) raw[i] = packets_of_row[packet + i * kThreads];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (kTask == LogitsTask::kScoreThenGradient && packet + i * kThreads < cached) {
          cache[packet + i * kThreads] = raw[i];
        }
        Unpack<T>(raw[i], x + i * kSize);
      }
      sums.Add(x);
    }
    for (; packet < packets; packet += kThreads) {
      const uint4 raw = packets_of_row[packet];
      if (kTask == LogitsTask::kScoreThenGradient && packet < cached) cache[packet] = raw;
      float x[kSize];
      Unpack<T>(raw, x);
      sums.Add(x);
    }
    if (has_rest) {
      const float x[1] = {ToFloat(logits[rest])};
      sums.Add(x);
    }
    BlockTotal<T, kThreads>(sums);
    const float log_sum = logf(sums.exp);
    gradient.logsumexp = sums.top + log_sum;
    if (owns_label) args.log_prob[slot] = label_logit - gradient.logsumexp;
    if (thread == 0) {
      if (!valid) args.log_prob[slot] = nanf("");
      if (args.logsumexp != nullptr) args.logsumexp[slot] = gradient.logsumexp;
      if (args.entropy != nullptr) args.entropy[slot] = log_sum - sums.weighted / sums.exp;
    }
  } else {
    gradient.logsumexp = args.saved_logsumexp[slot];
  }

  if constexpr (kTask != LogitsTask::kScore) {
    const float d_loss = args.d_loss[slot];
    gradient.base = d_loss;
    if (args.d_entropy != nullptr) {
      gradient.slope = args.d_entropy[slot];
      gradient.base -= gradient.slope * args.saved_entropy[slot];
    }
    const auto load = [&](int packet) {
      return kTask == LogitsTask::kScoreThenGradient && packet < cached ? cache[packet] : packets_of_row[packet];
    };
    const auto replace = [&](int packet, uint4 raw) {
      float x[kSize];
      Unpack<T>(raw, x);
      Packet<T> result;
#pragma unroll
      for (int i = 0; i < kSize; ++i) result.v[i] = gradient.At<T>(x[i]);
      Store(logits + static_cast<int64_t>(packet) * kSize, result);
    };
    int packet = thread;
    for (; packet + (kInFlight - 1) * kThreads < packets; packet += kInFlight * kThreads) {
      uint4 raw[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) raw[i] = load(packet + i * kThreads);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) replace(packet + i * kThreads, raw[i]);
    }
    for (; packet < packets; packet += kThreads) replace(packet, load(packet));
    if (has_rest) logits[rest] = FromFloat<T>(gradient.At<T>(ToFloat(logits[rest])));
    // Over what the loop wrote there: one element is not worth a comparison in each of the others.
    if (owns_label) logits[label] = FromFloat<T>(gradient.At<T>(label_logit) - d_loss);
  }
}

// Rows short enough for two of them on a multiprocessor: while the threads of one wait for each other, the other loads.
constexpr int64_t kShortRow = int64_t{104} << 10;
constexpr int64_t kLongCache = int64_t{208} << 10;

template <typename T, LogitsTask kTask, int kThreads>
absl::Status Launch(const LogitsRows& rows, int grid, int64_t cache_bytes, Stream stream) {
  const auto kernel = RowKernel<T, kTask, kThreads>;
  if (cache_bytes > 0) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(cache_bytes));
  }
  kernel<<<static_cast<unsigned>(grid), kThreads, static_cast<size_t>(cache_bytes), HandleOf(stream)>>>(
      rows, static_cast<int>(cache_bytes / 16));
  return LaunchStatus(kKernel);
}

template <typename T>
absl::Status RunAs(LogitsTask task, const LogitsRows& rows, Stream stream) {
  if (task == LogitsTask::kScore) return Launch<T, LogitsTask::kScore, 512>(rows, rows.rows, 0, stream);
  if (task == LogitsTask::kGradient) return Launch<T, LogitsTask::kGradient, 512>(rows, rows.padded, 0, stream);
  const int64_t row_bytes = rows.vocabulary / Packet<T>::kSize * 16;
  const int64_t cache_bytes = std::min(row_bytes, row_bytes <= kShortRow ? kShortRow : kLongCache);
  return row_bytes <= kShortRow
             ? Launch<T, LogitsTask::kScoreThenGradient, 512>(rows, rows.padded, cache_bytes, stream)
             : Launch<T, LogitsTask::kScoreThenGradient, 1024>(rows, rows.padded, cache_bytes, stream);
}

}  // namespace

absl::Status Run(LogitsTask task, DType dtype, const LogitsRows& rows, Stream stream) {
  return VisitFloating(dtype, [&](auto zero) { return RunAs<DeviceType<decltype(zero)>>(task, rows, stream); });
}

}  // namespace sluice::kernels::cuda
