#include "kernels/parallel.h"
#include "kernels/swiglu/backends.h"
#include "kernels/vector_math.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {
namespace {

template <typename T>
void ForwardRow(const T* gate, const T* up, int64_t size, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    const float g = static_cast<float>(gate[i]);
    y[i] = T(g * FastSigmoid(g) * static_cast<float>(up[i]));
  }
}

}  // namespace

absl::Status Forward(const SwigluForward& args, Stream) {
  const int64_t size = args.y.dim(1);
  VisitFloating(args.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    ParallelFor(args.y.dim(0), GrainOf(4 * size), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* gate = args.gate_up.as<T>() + row * 2 * size;
        const T* up = gate + size;
        T* y = args.y.as<T>() + row * size;
        ForwardRow(gate, up, size, y);
      }
    });
  });
  return absl::OkStatus();
}

absl::Status Backward(const SwigluBackward& args, Stream) {
  const int64_t size = args.dy.dim(1);
  VisitFloating(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    ParallelFor(args.dy.dim(0), GrainOf(4 * size), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* gate = args.gate_up.as<T>() + row * 2 * size;
        const T* up = gate + size;
        const T* dy = args.dy.as<T>() + row * size;
        T* dgate = args.dgate_up.as<T>() + row * 2 * size;
        T* dup = dgate + size;
        if (!args.y.empty()) ForwardRow(gate, up, size, args.y.as<T>() + row * size);  // before gate is overwritten
#pragma omp simd
        for (int64_t i = 0; i < size; ++i) {
          const float g = static_cast<float>(gate[i]);
          const float u = static_cast<float>(up[i]);
          const float d = static_cast<float>(dy[i]);
          const float sigmoid = FastSigmoid(g);
          dgate[i] = T(d * u * sigmoid * (1.0f + g * (1.0f - sigmoid)));
          dup[i] = T(d * g * sigmoid);
        }
      }
    });
  });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
