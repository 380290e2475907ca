#include <algorithm>

#include "kernels/bias/backends.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {

absl::Status Backward(const BiasBackward& args, Stream) {
  const int64_t rows = args.dy.dim(0);
  const int64_t columns = args.dy.dim(1);
  const int64_t grain = GrainOf(columns);
  const int64_t parts = PartCount(rows, grain);
  Scratch partial = MakeScratch(parts * columns);
  std::fill_n(partial.get(), parts * columns, 0.0f);
  VisitFloating(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    ParallelParts(rows, grain, [&](int64_t part, int64_t begin, int64_t end) {
      float* sums = partial.get() + part * columns;
      for (int64_t row = begin; row < end; ++row) {
        const T* dy = args.dy.as<T>() + row * args.dy.row_stride;
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) sums[i] += static_cast<float>(dy[i]);
      }
    });
  });
  float* dbias = args.dbias.as<float>();
  for (int64_t part = 0; part < parts; ++part) {
    const float* sums = partial.get() + part * columns;
    for (int64_t i = 0; i < columns; ++i) dbias[i] += sums[i];
  }
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
