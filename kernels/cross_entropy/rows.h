// Rows of hidden of the scored slots, one after the other: on CUDA.
#pragma once

#include <cstdint>

#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels::cuda {

// Row i of `to` [padded, H] is row slots[i] of `hidden` for i < rows, and zero behind them. Issued on `stream`.
void GatherScoredRows(ConstTensorView hidden, const int32_t* slots, int64_t rows, TensorView to, Stream stream);

}  // namespace sluice::kernels::cuda
