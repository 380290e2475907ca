// The gradient of a linear layer's bias: the sum of the rows. (The matrix product adds the bias itself.)
#pragma once

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// T = tokens, N = columns.
struct BiasBackward {
  ConstTensorView dy;  // [T, N] bf16 or fp32, strided
  TensorView dbias;    // [N] fp32: the column sums are accumulated into it
};

// Deterministic: the order of the sum is fixed by T and N, on the CPU also by the number of threads.
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices.
absl::Status Backward(const BiasBackward& args, Stream stream);

}  // namespace sluice::kernels
