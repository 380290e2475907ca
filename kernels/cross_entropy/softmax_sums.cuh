// The sums of a softmax and of its entropy, of logits that are seen once: relative to the greatest so far
// (Milakov & Gimelshein 2018, online softmax).
#pragma once

namespace sluice::kernels::cuda {

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2 = 0.693147181f;

// 2^x by the hardware: its error of 2^-22 is lost in the rounding of bf16 logits.
__device__ __forceinline__ float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// The powers of SoftmaxSums. Logits in units of log 2 are cheapest.
struct PowerOfTwo {
  __device__ __forceinline__ static float Of(float x) { return Exp2(x); }
};
struct ApproximatePowerOfE {
  __device__ __forceinline__ static float Of(float x) { return Exp2(x * kLog2E); }
};
struct ExactPowerOfE {
  __device__ __forceinline__ static float Of(float x) { return expf(x); }
};

template <typename Power>
struct SoftmaxSums {
  // Less than every logit, and finite: its distance to another one times 0 is 0.
  static constexpr float kNoTop = -1e20f;

  float top = kNoTop;
  float exp = 0.0f;       // of b^t, t = x - top
  float weighted = 0.0f;  // of t b^t

  // REQUIRES: new_top >= top.
  __device__ __forceinline__ void RaiseTop(float new_top) {
    const float step = top - new_top;
    const float factor = Power::Of(step);
    weighted = factor * (weighted + step * exp);
    exp *= factor;
    top = new_top;
  }

  __device__ __forceinline__ void Join(SoftmaxSums other) {
    const float greatest = fmaxf(top, other.top);
    RaiseTop(greatest);
    other.RaiseTop(greatest);
    exp += other.exp;
    weighted += other.weighted;
  }

  template <int kCount>
  __device__ __forceinline__ void Add(const float (&x)[kCount]) {
    float greatest = x[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) greatest = fmaxf(greatest, x[i]);
    if (greatest > top) RaiseTop(greatest);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float t = x[i] - top;
      const float power = Power::Of(t);
      exp += power;
      weighted += t * power;
    }
  }
};

}  // namespace sluice::kernels::cuda
