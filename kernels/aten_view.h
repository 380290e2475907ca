// Kernel views as LibTorch tensors: no copy, no ownership. The tensor must not outlive the view's memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/tensor_view.h"

namespace sluice::kernels {

at::Tensor AsTensor(TensorView view);

// LibTorch has no const tensors: the caller only reads from the result.
at::Tensor AsTensor(ConstTensorView view);

c10::ScalarType ScalarTypeOf(DType dtype);

}  // namespace sluice::kernels
