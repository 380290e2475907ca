// The implementations behind the flat dispatch: for flat.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/flat/flat.h"

namespace sluice::kernels {

namespace cpu {
absl::StatusOr<double> SumOfSquares(ConstTensorView x, Stream stream);
absl::StatusOr<bool> AllFinite(ConstTensorView x, Stream stream);
absl::Status Scale(TensorView x, float factor, Stream stream);
absl::Status Fill(TensorView x, float value, Stream stream);
absl::Status AddScaled(float alpha, ConstTensorView x, TensorView y, Stream stream);
absl::Status Cast(ConstTensorView from, TensorView to, Stream stream);
}  // namespace cpu

namespace aten {  // any device
absl::StatusOr<double> SumOfSquares(ConstTensorView x, Stream stream);
absl::StatusOr<bool> AllFinite(ConstTensorView x, Stream stream);
absl::Status Scale(TensorView x, float factor, Stream stream);
absl::Status Fill(TensorView x, float value, Stream stream);
absl::Status AddScaled(float alpha, ConstTensorView x, TensorView y, Stream stream);
absl::Status Cast(ConstTensorView from, TensorView to, Stream stream);
}  // namespace aten

}  // namespace sluice::kernels
