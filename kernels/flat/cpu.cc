#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/flat/backends.h"
#include "kernels/parallel.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {
namespace {

// Sums are taken per block of this many elements and the blocks added in order, so that the result does not depend on
// the threads.
constexpr int64_t kBlock = 16384;

template <typename T>
double BlockSumOfSquares(const T* x, int64_t count) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    const double value = static_cast<float>(x[i]);
    sum += value * value;
  }
  return sum;
}

double BlockSum(const float* x, int64_t count) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += x[i];
  return sum;
}

// The sum of block_sum(first, count) over the blocks of an array.
template <typename Body>
double SumOverBlocks(int64_t elements, Body block_sum) {
  const int64_t blocks = (elements + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  ParallelFor(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock;
      sums[static_cast<size_t>(block)] = block_sum(first, std::min(kBlock, elements - first));
    }
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

template <typename T>
void FillElements(TensorView x, T value) {
  T* data = x.as<T>();
  ParallelFor(x.elements(), kBlock, [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, value); });
}

}  // namespace

absl::Status SumOfSquares(ConstTensorView x, TensorView sum, Stream) {
  sum.as<double>()[0] = VisitFloating(x.dtype, [&](auto zero) {
    const auto* data = x.as<decltype(zero)>();
    return SumOverBlocks(x.elements(),
                         [&](int64_t first, int64_t count) { return BlockSumOfSquares(data + first, count); });
  });
  return absl::OkStatus();
}

absl::Status AddSum(ConstTensorView x, double factor, TensorView sum, Stream) {
  const float* data = x.as<float>();
  sum.as<double>()[0] +=
      factor * SumOverBlocks(x.elements(), [&](int64_t first, int64_t count) { return BlockSum(data + first, count); });
  return absl::OkStatus();
}

absl::Status Fill(TensorView x, double value, Stream) {
  if (x.dtype == DType::kFloat64) {
    FillElements(x, static_cast<double>(value));
  } else {
    VisitFloating(x.dtype, [&](auto zero) { FillElements(x, decltype(zero)(value)); });
  }
  return absl::OkStatus();
}

absl::Status Cast(ConstTensorView from, TensorView to, Stream) {
  VisitFloating(from.dtype, [&](auto from_zero) {
    VisitFloating(to.dtype, [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      const From* source = from.as<From>();
      To* target = to.as<To>();
      ParallelFor(from.elements(), kBlock, [&](int64_t begin, int64_t end) {
        if constexpr (std::is_same_v<From, To>) {
          std::memmove(target + begin, source + begin, static_cast<size_t>(end - begin) * sizeof(To));
        } else {
#pragma omp simd
          for (int64_t i = begin; i < end; ++i) target[i] = To(static_cast<float>(source[i]));
        }
      });
    });
  });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
