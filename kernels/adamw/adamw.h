// One AdamW step over a flat array of parameters.
//
//   g = grad_scale * grad
//   p = p * (1 - learning_rate * weight_decay)
//   m = m + (1 - beta1) * (g - m),  v = beta2 * v + (1 - beta2) * g^2
//   p = p - (learning_rate / (1 - beta1^step)) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
//
// Source: Loshchilov & Hutter 2019, algorithm 2, in the order of operations of torch.optim.AdamW (decay first, then
// moments, eps added after the bias correction), so that our losses follow a PyTorch run. State is fp32; the scalars
// are computed in double and rounded once.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

struct AdamWOptions {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  int64_t step = 1;       // 1 for the first update
  double grad_scale = 1;  // clipping and loss normalisation in one factor
};

// N = elements: any slice of the flat parameters, so that groups (decay, no decay) and shards are separate calls.
struct AdamW {
  TensorView master;      // [N] fp32: updated
  TensorView exp_avg;     // [N] fp32: m, updated
  TensorView exp_avg_sq;  // [N] fp32: v, updated
  ConstTensorView grad;   // [N] fp32
  TensorView param;       // [N] bf16 or fp32: master rounded to nearest even; empty where the master is the parameter
  AdamWOptions options;
};

// Element-wise, so bit-equal however the array is split. Returns InvalidArgument, naming the argument, for mismatched
// shapes, types or devices, or step < 1.
absl::Status Run(const AdamW& args, Stream stream);

}  // namespace sluice::kernels
