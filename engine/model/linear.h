// A linear layer y = x W^T + b and its backward, over the kernels.
#pragma once

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

// x [T, in], weight [out, in], bias [out] or empty, y [T, out]: overwritten. One type throughout.
absl::Status LinearForward(kernels::ConstTensorView x, kernels::ConstTensorView weight, kernels::ConstTensorView bias,
                           kernels::TensorView y, kernels::Stream stream);

// dx [T, in] = dy [T, out] weight [out, in]: overwritten.
absl::Status LinearInputGradient(kernels::ConstTensorView dy, kernels::ConstTensorView weight, kernels::TensorView dx,
                                 kernels::Stream stream);

// What the weights of one linear layer receive.
struct LinearWeightGradient {
  kernels::ConstTensorView dy;  // [T, out]
  kernels::ConstTensorView x;   // [T, in] forward's input
  kernels::TensorView dweight;  // [out, in] fp32
  kernels::TensorView dbias;    // [out] fp32: accumulated into; empty without a bias
  bool accumulate = true;       // false: dweight is overwritten
};
absl::Status Run(const LinearWeightGradient& args, kernels::Stream stream);

}  // namespace sluice::engine
