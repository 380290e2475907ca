#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/value_head/backends.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {
namespace {

template <typename T>
float Dot(const T* a, const T* b, int64_t size) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < size; ++i) sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  return sum;
}

// Threads share the columns, so that each adds its part of every row in the order of the tokens.
template <typename T>
void AddWeightGradient(const ValueHeadBackward& args) {
  const int64_t tokens = args.hidden.dim(0), hidden = args.hidden.dim(1);
  const T* rows = args.hidden.as<T>();
  const float* d_value = args.d_value.as<float>();
  float* dweight = args.dweight.as<float>();
  ParallelFor(hidden, std::max<int64_t>(GrainOf(tokens), 64), [&](int64_t begin, int64_t end) {
    if (!args.accumulate_dweight) std::fill(dweight + begin, dweight + end, 0.0f);
    for (int64_t token = 0; token < tokens; ++token) {
      const T* row = rows + token * hidden;
      const float factor = d_value[token];
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) dweight[i] += factor * static_cast<float>(row[i]);
    }
  });
}

template <typename T>
void WriteHiddenGradient(const ValueHeadBackward& args) {
  const int64_t hidden = args.hidden.dim(1);
  const T* weight = args.weight.as<T>();
  const float* d_value = args.d_value.as<float>();
  T* dhidden = args.dhidden.as<T>();
  ParallelFor(args.hidden.dim(0), GrainOf(hidden), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      T* row = dhidden + token * hidden;
      const float factor = d_value[token];
#pragma omp simd
      for (int64_t i = 0; i < hidden; ++i) row[i] = T(factor * static_cast<float>(weight[i]));
    }
  });
}

}  // namespace

absl::Status Forward(const ValueHeadForward& args, Stream) {
  const int64_t hidden = args.hidden.dim(1);
  float* value = args.value.as<float>();
  VisitFloating(args.hidden.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* rows = args.hidden.as<T>();
    const T* weight = args.weight.as<T>();
    ParallelFor(args.hidden.dim(0), GrainOf(hidden), [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) value[token] = Dot(rows + token * hidden, weight, hidden);
    });
  });
  return absl::OkStatus();
}

absl::Status Backward(const ValueHeadBackward& args, Stream) {
  VisitFloating(args.hidden.dtype, [&](auto zero) {
    using T = decltype(zero);
    // First: dhidden may take hidden's place.
    AddWeightGradient<T>(args);
    WriteHiddenGradient<T>(args);
  });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
