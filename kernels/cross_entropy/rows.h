// Rows of hidden and dhidden of the scored slots, one after the other: on CUDA. All is issued on `stream`; `slots` are
// on the device, ascending.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels::cuda {

// Row i of `to` [padded, H] is row slots[i] of `hidden` for i < rows, and zero behind them.
absl::Status GatherScoredRows(ConstTensorView hidden, const int32_t* slots, int64_t rows, TensorView to, Stream stream);

// Row slots[i] of `to` is row i of `from`, for i < rows; the others stay.
absl::Status ScatterScoredRows(ConstTensorView from, const int32_t* slots, int64_t rows, TensorView to, Stream stream);

// Zeroes the rows of `to` that are not among the `scored` slots; those that are stay.
absl::Status ZeroOtherRows(const int32_t* slots, int64_t scored, TensorView to, Stream stream);

}  // namespace sluice::kernels::cuda
