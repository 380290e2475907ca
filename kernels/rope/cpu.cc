#include <cmath>

#include "kernels/parallel.h"
#include "kernels/rope/backends.h"
#include "kernels/scratch.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {
namespace {

template <typename T>
void RotateHeads(T* heads, int64_t count, int64_t head_dim, const float* cosines, const float* sines) {
  const int64_t half = head_dim / 2;
  for (int64_t head = 0; head < count; ++head) {
    T* first = heads + head * head_dim;
    T* second = first + half;
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const float a = static_cast<float>(first[i]);
      const float b = static_cast<float>(second[i]);
      first[i] = T(a * cosines[i] - b * sines[i]);
      second[i] = T(b * cosines[i] + a * sines[i]);
    }
  }
}

// `direction` is 1 forward, -1 backward.
template <typename T>
void Rotate(const Rope& args, float direction) {
  const int64_t tokens = args.q.dim(0);
  const int64_t head_dim = args.q.dim(2);
  const int64_t half = head_dim / 2;
  const int64_t k_heads = args.k.empty() ? 0 : args.k.dim(1);
  const int32_t* positions = args.positions.as<int32_t>();
  const float* inv_freq = args.inv_freq.as<float>();
  ParallelFor(tokens, GrainOf((args.q.dim(1) + k_heads) * head_dim), [&](int64_t begin, int64_t end) {
    Scratch table = MakeScratch(head_dim);
    float* cosines = table.get();
    float* sines = table.get() + half;
    for (int64_t token = begin; token < end; ++token) {
      for (int64_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(positions[token]) * inv_freq[i];
        cosines[i] = std::cos(angle) * args.attention_scaling;
        sines[i] = std::sin(angle) * args.attention_scaling * direction;
      }
      RotateHeads(args.q.as<T>() + token * args.q.row_stride, args.q.dim(1), head_dim, cosines, sines);
      if (k_heads > 0) RotateHeads(args.k.as<T>() + token * args.k.row_stride, k_heads, head_dim, cosines, sines);
    }
  });
}

}  // namespace

absl::Status Forward(const Rope& args, Stream) {
  VisitFloating(args.q.dtype, [&](auto zero) { Rotate<decltype(zero)>(args, 1.0f); });
  return absl::OkStatus();
}

absl::Status Backward(const Rope& args, Stream) {
  VisitFloating(args.q.dtype, [&](auto zero) { Rotate<decltype(zero)>(args, -1.0f); });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
