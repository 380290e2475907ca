#include <algorithm>
#include <bit>
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

template <typename T>
bool BlockIsFinite(const T* x, int64_t count) {
  constexpr uint32_t kExponent = 0x7F800000u;
  uint32_t bad = 0;
#pragma omp simd reduction(| : bad)
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = std::bit_cast<uint32_t>(static_cast<float>(x[i]));
    bad |= (word & kExponent) == kExponent ? 1u : 0u;
  }
  return bad == 0;
}

}  // namespace

absl::StatusOr<double> SumOfSquares(ConstTensorView x, Stream) {
  const int64_t count = x.elements();
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  VisitFloating(x.dtype, [&](auto zero) {
    const auto* data = x.as<decltype(zero)>();
    ParallelFor(blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kBlock;
        sums[static_cast<size_t>(block)] = BlockSumOfSquares(data + first, std::min(kBlock, count - first));
      }
    });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

absl::StatusOr<bool> AllFinite(ConstTensorView x, Stream) {
  const int64_t count = x.elements();
  std::vector<uint8_t> finite(static_cast<size_t>(PartCount(count, kBlock)), 1);
  VisitFloating(x.dtype, [&](auto zero) {
    const auto* data = x.as<decltype(zero)>();
    ParallelParts(count, kBlock, [&](int64_t part, int64_t begin, int64_t end) {
      finite[static_cast<size_t>(part)] = BlockIsFinite(data + begin, end - begin);
    });
  });
  return std::all_of(finite.begin(), finite.end(), [](uint8_t value) { return value != 0; });
}

absl::Status Scale(TensorView x, float factor, Stream) {
  VisitFloating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* data = x.as<T>();
    ParallelFor(x.elements(), kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) data[i] = T(static_cast<float>(data[i]) * factor);
    });
  });
  return absl::OkStatus();
}

absl::Status Fill(TensorView x, float value, Stream) {
  VisitFloating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* data = x.as<T>();
    ParallelFor(x.elements(), kBlock,
                [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, T(value)); });
  });
  return absl::OkStatus();
}

absl::Status AddScaled(float alpha, ConstTensorView x, TensorView y, Stream) {
  VisitFloating(x.dtype, [&](auto from_zero) {
    VisitFloating(y.dtype, [&](auto to_zero) {
      using To = decltype(to_zero);
      const auto* from = x.as<decltype(from_zero)>();
      To* to = y.as<To>();
      ParallelFor(x.elements(), kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
          to[i] = To(static_cast<float>(to[i]) + alpha * static_cast<float>(from[i]));
        }
      });
    });
  });
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
