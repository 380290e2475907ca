// The implementations behind the flat dispatch: for flat.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/flat/flat.h"

namespace sluice::kernels {

namespace cpu {
absl::Status SumOfSquares(ConstTensorView x, TensorView sum, Stream stream);
absl::Status AddSum(ConstTensorView x, double factor, TensorView sum, Stream stream);
absl::Status Fill(TensorView x, double value, Stream stream);
absl::Status Cast(ConstTensorView from, TensorView to, Stream stream);
}  // namespace cpu

namespace cuda {
absl::Status SumOfSquares(ConstTensorView x, TensorView sum, Stream stream);
absl::Status AddSum(ConstTensorView x, double factor, TensorView sum, Stream stream);
absl::Status Fill(TensorView x, double value, Stream stream);
absl::Status Cast(ConstTensorView from, TensorView to, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
