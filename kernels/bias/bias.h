// The bias of a linear layer: added to every row; its gradient is the sum of the rows.
#pragma once

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// T = tokens, N = columns.
struct BiasForward {
  ConstTensorView bias;  // [N] as y
  TensorView y;          // [T, N] bf16 or fp32, strided: the bias is added in place (in fp32, rounded once)
};

struct BiasBackward {
  ConstTensorView dy;  // [T, N] bf16 or fp32, strided
  TensorView dbias;    // [N] fp32: the column sums are accumulated into it
};

// Deterministic: the order of the sum is fixed by the number of threads.
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices.
absl::Status Forward(const BiasForward& args, Stream stream);
absl::Status Backward(const BiasBackward& args, Stream stream);

}  // namespace sluice::kernels
