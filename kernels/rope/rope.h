// Rotary position embedding in place, "rotate half" layout (not interleaved), forward and backward.
//
//   angle = position * inv_freq[i],  c = cos(angle) * attention_scaling,  s = sin(angle) * attention_scaling
//   x'[i]       = x[i] * c - x[i + D/2] * s          0 <= i < D/2
//   x'[i + D/2] = x[i + D/2] * c + x[i] * s
//
// The backward rotates by the negative angle (the transpose), with the same scaling.
// Source: Su et al. 2021 (RoFormer), section 3.4.2, in the layout of the Hugging Face checkpoints. Angles are products
// in fp32, as there: at long positions the rounding of the angle is part of the model. Each x' is rounded once.
#pragma once

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// T = tokens, Hq/Hkv = query and key heads, D = head size (even).
struct Rope {
  TensorView q;               // [T, Hq, D] bf16 or fp32, strided: rotated in place. In backward: dq.
  TensorView k;               // [T, Hkv, D] as q, strided, or empty. In backward: dk.
  ConstTensorView positions;  // [T] int32, >= 0
  ConstTensorView inv_freq;   // [D / 2] fp32, with the model's frequency scaling (llama3, linear) applied
  float attention_scaling = 1.0f;
};

// Deterministic. Return InvalidArgument, naming the argument, for mismatched shapes, types or devices, or odd D.
absl::Status Forward(const Rope& args, Stream stream);
absl::Status Backward(const Rope& args, Stream stream);

}  // namespace sluice::kernels
