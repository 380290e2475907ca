#include <algorithm>
#include <cmath>

#include "kernels/parallel.h"
#include "kernels/rms_norm/backends.h"
#include "kernels/scratch.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {
namespace {

// Row `row` of [T, H] or [T, heads, H], the rows of all heads counted through.
template <typename T, typename View>
auto* RowOf(const View& view, int64_t row) {
  if (view.shape.rank() == 2) return view.template as<T>() + row * view.row_stride;
  const int64_t heads = view.dim(1);
  return view.template as<T>() + row / heads * view.row_stride + row % heads * view.dim(2);
}

struct Size {
  int64_t rows, hidden;
};

Size SizeOfRows(const ConstTensorView& x) {
  const int64_t hidden = x.dim(x.shape.rank() - 1);
  return {hidden == 0 ? 0 : x.elements() / hidden, hidden};
}

template <typename T>
float SumOfSquaresOf(const T* row, int64_t hidden) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < hidden; ++i) sum += static_cast<float>(row[i]) * static_cast<float>(row[i]);
  return sum;
}

template <typename T>
void ForwardRows(const RmsNormForward& args) {
  const auto [rows, hidden] = SizeOfRows(args.x);
  const T* weight = args.weight.as<T>();
  float* rstds = args.rstd.as<float>();
  ParallelFor(rows, GrainOf(hidden), [&, hidden = hidden](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* r = RowOf<T>(args.x, row);
      if (!args.residual.empty()) {
        const T* residual = RowOf<T>(args.residual, row);
        T* sum = RowOf<T>(args.residual_out, row);
#pragma omp simd
        for (int64_t i = 0; i < hidden; ++i) sum[i] = T(static_cast<float>(r[i]) + static_cast<float>(residual[i]));
        r = sum;
      }
      const float rstd = 1.0f / std::sqrt(SumOfSquaresOf(r, hidden) / static_cast<float>(hidden) + args.eps);
      T* y = RowOf<T>(args.y, row);
#pragma omp simd
      for (int64_t i = 0; i < hidden; ++i) y[i] = T(static_cast<float>(r[i]) * rstd * static_cast<float>(weight[i]));
      rstds[row] = rstd;
    }
  });
}

// With n = r * rstd and g = dy * weight: dr = rstd * (g - n * mean(g * n)), dweight = sum over rows of dy * n.
template <typename T>
void BackwardRows(const RmsNormBackward& args) {
  const auto [rows, hidden] = SizeOfRows(args.r);
  const int64_t grain = GrainOf(hidden);
  const int64_t parts = PartCount(rows, grain);
  const T* weight = args.weight.as<T>();
  const float* rstds = args.rstd.as<float>();
  const bool wants_dweight = !args.dweight.empty();
  Scratch partial = MakeScratch(wants_dweight ? parts * hidden : 0);
  if (wants_dweight) std::fill_n(partial.get(), parts * hidden, 0.0f);

  ParallelParts(rows, grain, [&, hidden = hidden](int64_t part, int64_t begin, int64_t end) {
    float* dweight = partial.get() + part * hidden;
    for (int64_t row = begin; row < end; ++row) {
      const T* dy = RowOf<T>(args.dy, row);
      const T* r = RowOf<T>(args.r, row);
      T* dr = RowOf<T>(args.dr, row);
      const float rstd = rstds[row];
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < hidden; ++i) {
        sum += static_cast<float>(dy[i]) * static_cast<float>(weight[i]) * static_cast<float>(r[i]);
      }
      const float projection = sum * rstd * rstd / static_cast<float>(hidden);
#pragma omp simd
      for (int64_t i = 0; i < hidden; ++i) {
        const float g = static_cast<float>(dy[i]) * static_cast<float>(weight[i]);
        dr[i] = T(static_cast<float>(dr[i]) + rstd * (g - static_cast<float>(r[i]) * projection));
      }
      if (!args.y.empty()) {
        T* y = RowOf<T>(args.y, row);
#pragma omp simd
        for (int64_t i = 0; i < hidden; ++i) y[i] = T(static_cast<float>(r[i]) * rstd * static_cast<float>(weight[i]));
      }
      if (!wants_dweight) continue;
#pragma omp simd
      for (int64_t i = 0; i < hidden; ++i) dweight[i] += static_cast<float>(dy[i]) * static_cast<float>(r[i]) * rstd;
    }
  });

  if (!wants_dweight) return;
  float* dweight = args.dweight.as<float>();
  for (int64_t part = 0; part < parts; ++part) {
    const float* from = partial.get() + part * hidden;
    for (int64_t i = 0; i < hidden; ++i) dweight[i] += from[i];
  }
}

}  // namespace

absl::Status Forward(const RmsNormForward& args, Stream) {
  VisitFloating(args.x.dtype, [&](auto zero) { ForwardRows<decltype(zero)>(args); });
  return absl::OkStatus();
}

absl::Status Backward(const RmsNormBackward& args, Stream) {
  VisitFloating(args.r.dtype, [&](auto zero) { BackwardRows<decltype(zero)>(args); });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
