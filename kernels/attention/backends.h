// The implementations behind the attention dispatch: for attention.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/attention/attention.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Forward(const AttentionForward& args, Stream stream);
absl::Status Backward(const AttentionBackward& args, Stream stream);
}  // namespace cpu

namespace aten {  // any device
absl::Status Forward(const AttentionForward& args, Stream stream);
absl::Status Backward(const AttentionBackward& args, Stream stream);
}  // namespace aten

namespace cuda {  // cuDNN. REQUIRES: dense arrays that IsCapturableAttention takes, and bounds
absl::Status Run(const SequenceBounds& args, Stream stream);
absl::Status Forward(const AttentionForward& args, Stream stream);
absl::Status Backward(const AttentionBackward& args, Stream stream);
// Rows of `to` [T, row] behind the last sequence become zero. bounds as in AttentionForward, of arrays like `to`:
// `starts` are its starts in elements.
absl::Status ZeroTail(TensorView to, const int32_t* starts, int64_t sequences, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
