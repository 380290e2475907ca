// Root-mean-square normalisation with an optional residual add, forward and backward.
//
//   r = x + residual            (r = x without a residual)
//   y = r * rstd * weight,      rstd = 1 / sqrt(mean(r^2 over hidden) + eps)
//
// Source: Zhang & Sennrich 2019, equation 4; eps inside the root as in Llama. Statistics and the product are in
// fp32 whatever the storage type; r is rounded to storage before its statistics are taken, y is rounded once.
#pragma once

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// T = tokens, H = normalised size. Every [T, H] may also be [T, heads, H] with one weight [H] for all heads (the
// query and key norm of Qwen3): rows are then T * heads. All of them may be strided.
struct RmsNormForward {
  ConstTensorView x;         // [T, H] bf16 or fp32
  ConstTensorView residual;  // [T, H] as x, or empty
  ConstTensorView weight;    // [H]    as x
  float eps = 0;             // > 0
  TensorView residual_out;   // [T, H] as x: r. Empty iff residual is empty. May alias residual or x.
  TensorView y;              // [T, H] as x. May alias x if x is not needed for backward.
  TensorView rstd;           // [T] or [T, heads] fp32: saved for backward; dense
};

struct RmsNormBackward {
  ConstTensorView dy;      // [T, H]
  ConstTensorView r;       // [T, H]: forward's residual_out (x without a residual)
  ConstTensorView weight;  // [H]
  ConstTensorView rstd;    // [T] or [T, heads] fp32
  TensorView dr;           // [T, H]: accumulated into (the residual stream's gradient flows through here)
  TensorView dweight;      // [H] fp32: accumulated into; empty if the weight is frozen
  TensorView y;            // [T, H] as r: forward's y once more, for who did not keep it; or empty
};

// Run on the device that holds the views; the CPU implementation is the reference. Deterministic: the order of
// dweight's sum is fixed by T and H, on the CPU also by the number of threads. Thread-safe on disjoint outputs.
//
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices, H % 8 != 0 or eps <= 0.
absl::Status Forward(const RmsNormForward& args, Stream stream);
absl::Status Backward(const RmsNormBackward& args, Stream stream);

}  // namespace sluice::kernels
