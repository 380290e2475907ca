// Operations on flat arrays: parameters, gradients and optimizer state seen as [N]. Any shape is taken as its
// elements in order; all views dense.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// Sum of x^2 in double, x fp32 or bf16. The order of the sum depends on N only, not on threads, so the gradient norm is
// bit-equal from run to run. Waits for the device.
absl::StatusOr<double> SumOfSquares(ConstTensorView x, Stream stream);

// Whether no element is NaN or infinite; x fp32 or bf16. Waits for the device.
absl::StatusOr<bool> AllFinite(ConstTensorView x, Stream stream);

// x = factor * x; x fp32 or bf16 (in fp32, rounded once).
absl::Status Scale(TensorView x, float factor, Stream stream);

// Every element becomes value; x fp32 or bf16.
absl::Status Fill(TensorView x, float value, Stream stream);

// y = y + alpha * x; fp32 or bf16 each (in fp32, rounded once).
absl::Status AddScaled(float alpha, ConstTensorView x, TensorView y, Stream stream);

// to = from, between fp32 and bf16 (round to nearest even) or of the same type (a copy); on one device.
absl::Status Cast(ConstTensorView from, TensorView to, Stream stream);

// Each returns InvalidArgument, naming the argument, for a type it does not take, unequal element counts, strided views
// or different devices.

}  // namespace sluice::kernels
