// AdamW on the GPU: bound by memory. An element moves 4 bytes of gradient, twice the moments' 4 or 8 and twice the
// parameter's 2 or 4, so what matters is that each thread has all its loads in flight at once.
//
// A thread takes kGroup = 8 neighbouring elements, that is 16 bytes of each 2-byte array and 32 of each 4-byte one, and
// the random bits that belong to them: one Philox block a rounding, less than a third of one an element.
#include <algorithm>

#include "kernels/adamw/backends.h"
#include "kernels/adamw/update.h"
#include "kernels/cuda/workspace.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;
// What a thread computes once (the factors, in double) is spread over several groups, and the last blocks to run are
// short enough to leave no multiprocessor idle for long.
constexpr int kBlocksPerMultiprocessor = 16;

struct Arrays {
  int64_t count;
  bool aligned;  // all of them to 16 bytes
  const float* control;
  const float* grad;
  void* param;
  int16_t* remainder;
  void* exp_avg;
  void* exp_avg_sq;
};

// The group of elements that starts at `at`: `count` of them exist. `whole`: all eight do, and `at` is aligned.
template <typename T>
__device__ __forceinline__ void LoadGroup(const T* at, int count, bool whole, T (&values)[kGroup]) {
  if (whole) {
    constexpr int kLoads = sizeof(values) / sizeof(uint4);
    uint4 raw[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) raw[i] = __ldcs(reinterpret_cast<const uint4*>(at) + i);
    memcpy(values, raw, sizeof(values));
  } else {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) values[i] = i < count ? at[i] : T{};
  }
}

template <typename T>
__device__ __forceinline__ void StoreGroup(T* at, int count, bool whole, const T (&values)[kGroup]) {
  if (whole) {
    constexpr int kStores = sizeof(values) / sizeof(uint4);
    uint4 raw[kStores];
    memcpy(raw, values, sizeof(values));
#pragma unroll
    for (int i = 0; i < kStores; ++i) __stcs(reinterpret_cast<uint4*>(at) + i, raw[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (i < count) at[i] = values[i];
    }
  }
}

// Storage types here are float and uint16_t, the bits of a bf16.
__device__ __forceinline__ float Widen(float value) { return value; }
__device__ __forceinline__ float Widen(uint16_t bits) { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }

template <typename T>
__device__ __forceinline__ void Round(const float (&from)[kGroup], uint64_t seed, uint64_t updates, int64_t group,
                                      Rounding rounding, T (&to)[kGroup]) {
  if constexpr (sizeof(T) == 2) {
    const PhiloxBlock bits = RoundingBits(seed, updates, group, rounding);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) to[i] = RoundStochastically(from[i], BitsOf(bits, i));
  } else {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) to[i] = from[i];
  }
}

template <typename Param, bool kRemainder, typename Moment>
__global__ void __launch_bounds__(kThreads, 4) UpdateKernel(Arrays arrays, AdamWOptions options) {
  if (arrays.control[kControlApplies] == 0.0f) return;
  const UpdateFactors factors = FactorsOf(options, arrays.control);
  const auto updates = static_cast<uint64_t>(arrays.control[kControlUpdates]);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kGroup;
  for (int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup; first < arrays.count;
       first += stride) {
    const int count = arrays.count - first < kGroup ? static_cast<int>(arrays.count - first) : kGroup;
    const bool whole = arrays.aligned && count == kGroup;
    Param* param_at = static_cast<Param*>(arrays.param) + first;
    Moment* m_at = static_cast<Moment*>(arrays.exp_avg) + first;
    Moment* v_at = static_cast<Moment*>(arrays.exp_avg_sq) + first;
    float grad[kGroup];
    Param param[kGroup];
    [[maybe_unused]] int16_t remainder[kGroup];
    Moment stored_m[kGroup], stored_v[kGroup];
    LoadGroup(arrays.grad + first, count, whole, grad);
    LoadGroup(param_at, count, whole, param);
    if constexpr (kRemainder) LoadGroup(arrays.remainder + first, count, whole, remainder);
    LoadGroup(m_at, count, whole, stored_m);
    LoadGroup(v_at, count, whole, stored_v);

    float p[kGroup], m[kGroup], v[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if constexpr (kRemainder) {
        p[i] = Join(param[i], remainder[i]);
      } else {
        p[i] = Widen(param[i]);
      }
      m[i] = Widen(stored_m[i]);
      v[i] = Widen(stored_v[i]);
      UpdateElement(factors, grad[i], p[i], m[i], v[i]);
    }

    const int64_t group = (options.first_element + first) / kGroup;
    Round(m, options.seed, updates, group, Rounding::kExpAvg, stored_m);
    StoreGroup(m_at, count, whole, stored_m);
    Round(v, options.seed, updates, group, Rounding::kExpAvgSq, stored_v);
    StoreGroup(v_at, count, whole, stored_v);
    if constexpr (kRemainder) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const MasterParts parts = Split(p[i]);
        param[i] = parts.param;
        remainder[i] = parts.remainder;
      }
      StoreGroup(arrays.remainder + first, count, whole, remainder);
    } else {
      Round(p, options.seed, updates, group, Rounding::kParam, param);
    }
    StoreGroup(param_at, count, whole, param);
  }
}

__global__ void DecideKernel(const double* sum_of_squares, const double* loss, const double* learning_rate,
                             double max_norm, double beta1, double beta2, float* control) {
  Decide(*sum_of_squares, loss == nullptr ? 0.0 : *loss, *learning_rate, max_norm, beta1, beta2, control);
}

__global__ void __launch_bounds__(kThreads)
    SplitKernel(int64_t elements, bool aligned, const float* master, uint16_t* param, int16_t* remainder) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  if (first >= elements) return;
  const int count = elements - first < kGroup ? static_cast<int>(elements - first) : kGroup;
  const bool whole = aligned && count == kGroup;
  float values[kGroup];
  LoadGroup(master + first, count, whole, values);
  uint16_t high[kGroup];
  int16_t low[kGroup];
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const MasterParts parts = Split(values[i]);
    high[i] = parts.param;
    low[i] = parts.remainder;
  }
  StoreGroup(param + first, count, whole, high);
  StoreGroup(remainder + first, count, whole, low);
}

__global__ void __launch_bounds__(kThreads)
    JoinKernel(int64_t elements, bool aligned, const uint16_t* param, const int16_t* remainder, float* master) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  if (first >= elements) return;
  const int count = elements - first < kGroup ? static_cast<int>(elements - first) : kGroup;
  const bool whole = aligned && count == kGroup;
  uint16_t high[kGroup];
  int16_t low[kGroup];
  LoadGroup(param + first, count, whole, high);
  LoadGroup(remainder + first, count, whole, low);
  float values[kGroup];
#pragma unroll
  for (int i = 0; i < kGroup; ++i) values[i] = Join(high[i], low[i]);
  StoreGroup(master + first, count, whole, values);
}

template <typename... Views>
bool AllAligned(const Views&... views) {
  return ((reinterpret_cast<uintptr_t>(views.data) % 16 == 0) && ...);  // an absent one is
}

unsigned BlocksFor(int64_t elements) {
  constexpr int64_t kPerBlock = int64_t{kThreads} * kGroup;
  return static_cast<unsigned>((elements + kPerBlock - 1) / kPerBlock);
}

// Calls launch(Param{}, remainder, Moment{}) with the types that the arguments store.
template <typename Launch>
void VisitStorage(const AdamW& args, Launch launch) {
  const auto with_moment = [&](auto moment) {
    if (args.param.dtype == DType::kFloat32) {
      launch(float{}, std::false_type{}, moment);
    } else if (args.remainder.empty()) {
      launch(uint16_t{}, std::false_type{}, moment);
    } else {
      launch(uint16_t{}, std::true_type{}, moment);
    }
  };
  args.exp_avg.dtype == DType::kFloat32 ? with_moment(float{}) : with_moment(uint16_t{});
}

}  // namespace

absl::Status Run(const DecideUpdate& args, Stream stream) {
  DecideKernel<<<1, 1, 0, HandleOf(stream)>>>(
      args.sum_of_squares.as<double>(), args.loss.empty() ? nullptr : args.loss.as<double>(),
      args.learning_rate.as<double>(), args.max_norm, args.beta1, args.beta2, args.control.as<float>());
  return LaunchStatus("decide_update");
}

absl::Status Run(const AdamW& args, Stream stream) {
  const int64_t count = args.param.dim(0);
  if (count == 0) return absl::OkStatus();
  const Arrays arrays = {
      .count = count,
      .aligned = AllAligned(args.grad, args.param, args.remainder, args.exp_avg, args.exp_avg_sq),
      .control = args.control.as<float>(),
      .grad = args.grad.as<float>(),
      .param = args.param.data,
      .remainder = args.remainder.as<int16_t>(),
      .exp_avg = args.exp_avg.data,
      .exp_avg_sq = args.exp_avg_sq.data,
  };
  const unsigned blocks =
      std::min(BlocksFor(count), static_cast<unsigned>(MultiprocessorCount() * kBlocksPerMultiprocessor));
  VisitStorage(args, [&](auto param, auto remainder, auto moment) {
    UpdateKernel<decltype(param), remainder.value, decltype(moment)>
        <<<blocks, kThreads, 0, HandleOf(stream)>>>(arrays, args.options);
  });
  return LaunchStatus("adamw");
}

absl::Status Run(const SplitMaster& args, Stream stream) {
  const int64_t count = args.master.dim(0);
  if (count == 0) return absl::OkStatus();
  SplitKernel<<<BlocksFor(count), kThreads, 0, HandleOf(stream)>>>(
      count, AllAligned(args.master, args.param, args.remainder), args.master.as<float>(),
      static_cast<uint16_t*>(args.param.data), args.remainder.as<int16_t>());
  return LaunchStatus("split_master");
}

absl::Status Run(const JoinMaster& args, Stream stream) {
  const int64_t count = args.master.dim(0);
  if (count == 0) return absl::OkStatus();
  JoinKernel<<<BlocksFor(count), kThreads, 0, HandleOf(stream)>>>(
      count, AllAligned(args.master, args.param, args.remainder), static_cast<const uint16_t*>(args.param.data),
      args.remainder.as<int16_t>(), args.master.as<float>());
  return LaunchStatus("join_master");
}

}  // namespace sluice::kernels::cuda
