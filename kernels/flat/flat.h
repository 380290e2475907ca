// Operations on flat arrays: parameters, gradients and optimizer state seen as [N]. Any shape is taken as its
// elements in order; all views dense.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// sum [1] fp64 = sum of x^2, x fp32 or bf16: in double, in an order that depends on N only, so that the gradient norm
// is bit-equal from run to run.
absl::Status SumOfSquares(ConstTensorView x, TensorView sum, Stream stream);

// sum [1] fp64 += factor * (sum of x), x [N] fp32: in double, in an order that depends on N only.
absl::Status AddSum(ConstTensorView x, double factor, TensorView sum, Stream stream);

// Every element becomes value, rounded once; x fp32, bf16 or fp64.
absl::Status Fill(TensorView x, double value, Stream stream);

// to = from, between fp32 and bf16 (round to nearest even) or of the same type (a copy); on one device.
absl::Status Cast(ConstTensorView from, TensorView to, Stream stream);

// Each returns InvalidArgument, naming the argument, for a type it does not take, unequal element counts, strided views
// or different devices.

}  // namespace sluice::kernels
