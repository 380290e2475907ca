// One AdamW step over a flat array of parameters, and the decision that precedes it.
//
//   norm = sqrt(sum g^2);   c = min(1, max_norm / (norm + 1e-6));   g = c * grad
//   p = p * (1 - learning_rate * weight_decay)
//   m = m + (1 - beta1) * (g - m),  v = beta2 * v + (1 - beta2) * g^2
//   p = p - (learning_rate / (1 - beta1^n)) * m / (sqrt(v) * (1 / sqrt(1 - beta2^n)) + eps),   n = updates, this one
//   included
//
// Source: Loshchilov & Hutter 2019, algorithm 2, in the order of operations of torch.optim.AdamW (decay first, then
// moments, eps added after the bias correction), so that our losses follow a PyTorch run; 1e-6 as in
// torch.nn.utils.clip_grad_norm_. The scalars are computed in double and rounded once; the update is in fp32.
//
// What the update depends on that only the device knows (the norm, whether it is finite, how many updates there were)
// stays there, in an array of UpdateControl, so that a step needs no wait for the device.
//
// Three ways to hold a parameter:
//   fp32                     param fp32
//   exact master, 4 bytes    param bf16 and remainder int16: bits(master) = (bits(param) << 16) + remainder. param is
//   the
//                            master rounded to nearest, ties away from zero (so that the remainder always fits).
//   bf16 only, 2 bytes       param bf16 without a remainder: rounded stochastically, so that small updates count on
//                            average
// Moments are fp32, or bf16 rounded stochastically. Random bits are Philox's under (seed, n, element), so that a step
// can be repeated: element is the index in the whole flat array, `first_element` that of a slice's first (update.h).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// The elements of a control array, [kUpdateControls] fp32 on the device.
enum UpdateControl : int {
  kControlGradNorm = 0,     // before clipping; not finite where the update is skipped, NaN if for the loss alone
  kControlClipFactor,       // c; 1 where the update is skipped
  kControlApplies,          // 1; 0: the norm or the loss is not finite, and AdamW changes nothing
  kControlUpdates,          // n: updates applied so far, this one included; exact up to 2^24
  kControlCorrection1,      // 1 - beta1^n
  kControlRootCorrection2,  // sqrt(1 - beta2^n)
  // The learning rate as the sum of two: almost a double's digits.
  kControlLearningRate,
  kControlLearningRateRest,
  kUpdateControls
};

// Decides about the update: fills `control` from the sum of squares. kControlUpdates is read (the count so far) and
// increased if the update applies.
struct DecideUpdate {
  ConstTensorView sum_of_squares;  // [1] fp64: of all gradients
  ConstTensorView loss;            // [1] fp64: the update is skipped where it is not finite; or empty
  ConstTensorView learning_rate;   // [1] fp64: there, because it changes from step to step and a step can be recorded
  double max_norm = 0;             // 0: no clipping
  double beta1 = 0.9;
  double beta2 = 0.999;
  TensorView control;  // [kUpdateControls] fp32
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  uint64_t seed = 0;          // of the stochastic rounding
  int64_t first_element = 0;  // index of this slice's first element in the whole array; a multiple of 8
};

// N = elements: any slice of the flat parameters, so that groups (decay, no decay) and shards are separate calls.
// Dense.
struct AdamW {
  ConstTensorView control;  // [kUpdateControls] fp32, as DecideUpdate left it
  ConstTensorView grad;     // [N] fp32
  TensorView param;         // [N] fp32 or bf16: updated
  TensorView remainder;     // [N] int16: updated; empty: param is all there is
  TensorView exp_avg;       // [N] fp32 or bf16: m, updated
  TensorView exp_avg_sq;    // [N] as exp_avg: v, updated
  AdamWOptions options;
};

// Element-wise, so bit-equal however the array is split. Return InvalidArgument, naming the argument, for mismatched
// shapes, types or devices, and numbers out of range.
absl::Status Run(const DecideUpdate& args, Stream stream);
absl::Status Run(const AdamW& args, Stream stream);

// param and remainder of fp32 values, and back (exact; NaN loses its payload). N elements each, dense.
struct SplitMaster {
  ConstTensorView master;  // [N] fp32
  TensorView param;        // [N] bf16
  TensorView remainder;    // [N] int16
};
struct JoinMaster {
  ConstTensorView param;      // [N] bf16
  ConstTensorView remainder;  // [N] int16
  TensorView master;          // [N] fp32
};
absl::Status Run(const SplitMaster& args, Stream stream);
absl::Status Run(const JoinMaster& args, Stream stream);

}  // namespace sluice::kernels
