// From the projected queries, keys and values to what attention reads, forward and backward: an optional norm of every
// query and key head (Qwen3), rotary position embedding in the "rotate half" layout (not interleaved), and the split of
// the packed projection into three dense arrays.
//
//   n            = x, or x * rstd * weight with rstd = 1 / sqrt(mean(x^2 over D) + eps)     queries and keys
//   q[i]         = n[i] * cos[i] - n[i + D/2] * sin[i]          0 <= i < D/2                same for k
//   q[i + D/2]   = n[i + D/2] * cos[i] + n[i] * sin[i]
//   v            = x
//   cos[t, i]    = cos(position[t] * inv_freq[i]) * attention_scaling, sin likewise
//
// The backward of the rotation is the rotation by the negative angle, with the same scaling.
// Source: Su et al. 2021 (RoFormer), section 3.4.2, in the layout of the Hugging Face checkpoints. Angles are products
// in fp32, as there: at long positions the rounding of the angle is part of the model. Everything between reading and
// writing an element is in fp32; it is rounded once.
#pragma once

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// T = tokens, Hq/Hkv = query and key heads, D = head size (even; on CUDA fast if a multiple of 16,
// with norms a power of two). All dense.

// The angles of every token: once for all layers.
struct RotaryTable {
  ConstTensorView positions;  // [T] int32, >= 0
  ConstTensorView inv_freq;   // [D / 2] fp32, with the model's frequency scaling (llama3, linear) applied
  float attention_scaling = 1.0f;
  TensorView cos_sin;  // [T, D] fp32: a token's D/2 cosines, then its D/2 sines
};

struct RopeForward {
  ConstTensorView qkv;      // [T, (Hq + 2 Hkv) * D] bf16 or fp32: query heads, key heads, value heads
  ConstTensorView cos_sin;  // [T, D] fp32
  ConstTensorView q_norm;   // [D] as qkv, or empty: no norm (then all five of these are empty)
  ConstTensorView k_norm;   // [D] as qkv
  float eps = 0;            // > 0 with norms
  TensorView q_rstd;        // [T, Hq] fp32: saved for backward
  TensorView k_rstd;        // [T, Hkv] fp32: saved for backward
  TensorView q;             // [T, Hq, D] as qkv
  TensorView k;             // [T, Hkv, D] as qkv
  TensorView v;             // [T, Hkv, D] as qkv
};

struct RopeBackward {
  ConstTensorView dq;       // [T, Hq, D] bf16 or fp32
  ConstTensorView dk;       // [T, Hkv, D] as dq
  ConstTensorView dv;       // [T, Hkv, D] as dq
  ConstTensorView cos_sin;  // [T, D] fp32
  ConstTensorView qkv;      // forward's input; read with norms only, else empty
  ConstTensorView q_norm;   // as in forward
  ConstTensorView k_norm;
  ConstTensorView q_rstd;  // forward's results
  ConstTensorView k_rstd;
  TensorView dqkv;     // [T, (Hq + 2 Hkv) * D] as dq: overwritten. May alias qkv.
  TensorView dq_norm;  // [D] fp32: accumulated into; empty without norms
  TensorView dk_norm;  // [D] fp32: accumulated into; empty without norms
};

// Deterministic; the order of the norm gradients' sums is fixed by the sizes, on the CPU also by the number of threads.
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices, or odd D.
absl::Status Run(const RotaryTable& args, Stream stream);
absl::Status Forward(const RopeForward& args, Stream stream);
absl::Status Backward(const RopeBackward& args, Stream stream);

}  // namespace sluice::kernels
