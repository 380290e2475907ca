// Checks of kernel arguments: one line per argument, one message form for all kernels.
//
//   rms_norm: rstd: expected fp32 [1024] on cpu, got fp32 [512] on cpu
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

enum class Layout : uint8_t { kDense, kStrided };

// InvalidArgument unless `view` is present, has this type, shape and device, and is dense where it must be.
// `kernel` and `argument` are the names in the message.
absl::Status CheckView(std::string_view kernel, std::string_view argument, ConstTensorView view, DType dtype,
                       const Shape& shape, Device device, Layout layout = Layout::kDense);

// As CheckView, for the argument that sets the type and the sizes of the others: it must be present, bf16 or fp32, of
// rank `rank`, on the stream's device.
absl::Status CheckLeadingView(std::string_view kernel, std::string_view argument, ConstTensorView view, int rank,
                              Stream stream, Layout layout = Layout::kDense);

// InvalidArgument unless the slots in `scored` [S] int32 ascend below `tokens` and each has a label of the vocabulary
// in `labels` [tokens] int32. Only where the host can read them: OK on CUDA.
absl::Status CheckScoredSlots(std::string_view kernel, ConstTensorView scored, ConstTensorView labels, int64_t tokens,
                              int64_t vocabulary);

absl::Status InvalidArgument(std::string_view kernel, std::string_view argument, std::string_view problem);

}  // namespace sluice::kernels
