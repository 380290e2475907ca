// A linear layer y = x W^T + b and its backward, over the kernels.
#pragma once

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

// x [T, in], weight [out, in], bias [out] or empty, y [T, out]: overwritten. One type throughout.
absl::Status LinearForward(kernels::ConstTensorView x, kernels::ConstTensorView weight, kernels::ConstTensorView bias,
                           kernels::TensorView y, kernels::Stream stream);

struct LinearBackward {
  kernels::ConstTensorView dy;      // [T, out]
  kernels::ConstTensorView x;       // [T, in] forward's input
  kernels::ConstTensorView weight;  // [out, in]
  kernels::TensorView dx;           // [T, in]: overwritten
  kernels::TensorView dweight;      // [out, in] fp32: accumulated into
  kernels::TensorView dbias;        // [out] fp32: accumulated into; empty without a bias
};

absl::Status Run(const LinearBackward& args, kernels::Stream stream);

}  // namespace sluice::engine
