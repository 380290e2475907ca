#include <algorithm>
#include <cstring>

#include "kernels/embedding/backends.h"
#include "kernels/parallel.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {

absl::Status Forward(const EmbeddingForward& args, Stream) {
  const int64_t row_bytes = args.weight.dim(1) * SizeOf(args.weight.dtype);
  const char* table = static_cast<const char*>(args.weight.data);
  char* y = static_cast<char*>(args.y.data);
  const int32_t* ids = args.ids.as<int32_t>();
  ParallelFor(args.ids.dim(0), GrainOf(args.weight.dim(1)), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      std::memcpy(y + token * row_bytes, table + ids[token] * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
  return absl::OkStatus();
}

// Threads share the columns, so that each adds its part of every row in the order of the tokens without locks.
absl::Status Backward(const EmbeddingBackward& args, Stream) {
  const int64_t tokens = args.ids.dim(0);
  const int64_t hidden = args.dy.dim(1);
  const int32_t* ids = args.ids.as<int32_t>();
  float* dweight = args.dweight.as<float>();
  VisitFloating(args.dy.dtype, [&](auto zero) {
    const auto* dy = args.dy.as<decltype(zero)>();
    ParallelFor(hidden, std::max<int64_t>(GrainOf(tokens), 64), [&](int64_t begin, int64_t end) {
      for (int64_t token = 0; token < tokens; ++token) {
        float* to = dweight + ids[token] * hidden;
        const auto* from = dy + token * hidden;
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) to[i] += static_cast<float>(from[i]);
      }
    });
  });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
