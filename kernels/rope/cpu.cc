#include <algorithm>
#include <cmath>

#include "kernels/parallel.h"
#include "kernels/rope/backends.h"
#include "kernels/scratch.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {
namespace {

struct Sizes {
  int64_t tokens, q_heads, kv_heads, head_dim;

  int64_t width() const { return (q_heads + 2 * kv_heads) * head_dim; }
};

Sizes SizesOf(const ConstTensorView& q, const ConstTensorView& k) { return {q.dim(0), q.dim(1), k.dim(1), q.dim(2)}; }

// One query or key head; `weight` null: no norm. `normed` is scratch.
template <typename T>
void ForwardHead(const T* x, const T* weight, float eps, float* rstd, const float* cos_sin, int64_t head_dim,
                 float* normed, T* y) {
  const int64_t half = head_dim / 2;
  if (weight == nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < head_dim; ++i) normed[i] = static_cast<float>(x[i]);
  } else {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < head_dim; ++i) sum += static_cast<float>(x[i]) * static_cast<float>(x[i]);
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(head_dim) + eps);
    *rstd = scale;
#pragma omp simd
    for (int64_t i = 0; i < head_dim; ++i) normed[i] = static_cast<float>(x[i]) * scale * static_cast<float>(weight[i]);
  }
  const float* sines = cos_sin + half;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = normed[i];
    const float b = normed[half + i];
    y[i] = T(a * cos_sin[i] - b * sines[i]);
    y[half + i] = T(b * cos_sin[i] + a * sines[i]);
  }
}

template <typename T>
void ForwardTokens(const RopeForward& args) {
  const Sizes sizes = SizesOf(args.q, args.k);
  const int64_t head_dim = sizes.head_dim;
  ParallelFor(sizes.tokens, GrainOf(sizes.width()), [&](int64_t begin, int64_t end) {
    Scratch normed = MakeScratch(head_dim);
    for (int64_t token = begin; token < end; ++token) {
      const T* x = args.qkv.as<T>() + token * sizes.width();
      const float* cos_sin = args.cos_sin.as<float>() + token * head_dim;
      const auto heads = [&](int64_t count, const ConstTensorView& weight, const TensorView& rstd,
                             const TensorView& to) {
        for (int64_t head = 0; head < count; ++head, x += head_dim) {
          const int64_t row = token * count + head;
          ForwardHead(x, weight.as<T>(), args.eps, weight.empty() ? nullptr : rstd.as<float>() + row, cos_sin, head_dim,
                      normed.get(), to.as<T>() + row * head_dim);
        }
      };
      heads(sizes.q_heads, args.q_norm, args.q_rstd, args.q);
      heads(sizes.kv_heads, args.k_norm, args.k_rstd, args.k);
      std::copy_n(x, sizes.kv_heads * head_dim, args.v.as<T>() + token * sizes.kv_heads * head_dim);
    }
  });
}

// One query or key head; `weight` null: no norm. With n = x * rstd and g = the gradient of n * weight:
// dx = rstd * (g * weight - n * mean(g * weight * n)), dweight += g * n. `x` may be `dx`; `gradient` is scratch.
template <typename T>
void BackwardHead(const T* dy, const float* cos_sin, int64_t head_dim, const T* x, const T* weight, const float* rstd,
                  float* gradient, T* dx, float* dweight) {
  const int64_t half = head_dim / 2;
  const float* sines = cos_sin + half;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = static_cast<float>(dy[i]);
    const float b = static_cast<float>(dy[half + i]);
    gradient[i] = a * cos_sin[i] + b * sines[i];
    gradient[half + i] = b * cos_sin[i] - a * sines[i];
  }
  if (weight == nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < head_dim; ++i) dx[i] = T(gradient[i]);
    return;
  }
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < head_dim; ++i) {
    sum += gradient[i] * static_cast<float>(weight[i]) * static_cast<float>(x[i]);
  }
  const float scale = *rstd;
  const float projection = sum * scale * scale / static_cast<float>(head_dim);
#pragma omp simd
  for (int64_t i = 0; i < head_dim; ++i) {
    const float value = static_cast<float>(x[i]);
    dweight[i] += gradient[i] * value * scale;
    dx[i] = T(scale * (gradient[i] * static_cast<float>(weight[i]) - value * projection));
  }
}

template <typename T>
void BackwardTokens(const RopeBackward& args) {
  const Sizes sizes = SizesOf(args.dq, args.dk);
  const int64_t head_dim = sizes.head_dim;
  const bool norms = !args.q_norm.empty();
  const int64_t grain = GrainOf(sizes.width());
  const int64_t parts = PartCount(sizes.tokens, grain);
  Scratch partial = MakeScratch(parts * 2 * head_dim);  // of each part: dq_norm, then dk_norm
  std::fill_n(partial.get(), parts * 2 * head_dim, 0.0f);

  ParallelParts(sizes.tokens, grain, [&](int64_t part, int64_t begin, int64_t end) {
    Scratch gradient = MakeScratch(head_dim);
    float* dq_norm = partial.get() + part * 2 * head_dim;
    for (int64_t token = begin; token < end; ++token) {
      int64_t at = token * sizes.width();
      const float* cos_sin = args.cos_sin.as<float>() + token * head_dim;
      const auto heads = [&](int64_t count, const ConstTensorView& dy, const ConstTensorView& weight,
                             const ConstTensorView& rstd, float* dweight) {
        for (int64_t head = 0; head < count; ++head, at += head_dim) {
          const int64_t row = token * count + head;
          BackwardHead(dy.as<T>() + row * head_dim, cos_sin, head_dim, norms ? args.qkv.as<T>() + at : nullptr,
                       weight.as<T>(), norms ? rstd.as<float>() + row : nullptr, gradient.get(), args.dqkv.as<T>() + at,
                       dweight);
        }
      };
      heads(sizes.q_heads, args.dq, args.q_norm, args.q_rstd, dq_norm);
      heads(sizes.kv_heads, args.dk, args.k_norm, args.k_rstd, dq_norm + head_dim);
      const int64_t width = sizes.kv_heads * head_dim;
      std::copy_n(args.dv.as<T>() + token * width, width, args.dqkv.as<T>() + at);
    }
  });

  if (!norms) return;
  for (int64_t part = 0; part < parts; ++part) {
    const float* from = partial.get() + part * 2 * head_dim;
    for (int64_t i = 0; i < head_dim; ++i) args.dq_norm.as<float>()[i] += from[i];
    for (int64_t i = 0; i < head_dim; ++i) args.dk_norm.as<float>()[i] += from[head_dim + i];
  }
}

}  // namespace

absl::Status Run(const RotaryTable& args, Stream) {
  const int64_t half = args.inv_freq.dim(0);
  const int32_t* positions = args.positions.as<int32_t>();
  const float* inv_freq = args.inv_freq.as<float>();
  ParallelFor(args.positions.dim(0), GrainOf(32 * half), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      float* cosines = args.cos_sin.as<float>() + token * 2 * half;
      float* sines = cosines + half;
      for (int64_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(positions[token]) * inv_freq[i];
        cosines[i] = std::cos(angle) * args.attention_scaling;
        sines[i] = std::sin(angle) * args.attention_scaling;
      }
    }
  });
  return absl::OkStatus();
}

absl::Status Forward(const RopeForward& args, Stream) {
  VisitFloating(args.qkv.dtype, [&](auto zero) { ForwardTokens<decltype(zero)>(args); });
  return absl::OkStatus();
}

absl::Status Backward(const RopeBackward& args, Stream) {
  VisitFloating(args.dq.dtype, [&](auto zero) { BackwardTokens<decltype(zero)>(args); });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
