// The implementations behind the attention dispatch: for attention.cc and the tests that hold one against the other.
#pragma once

#include <initializer_list>

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
// Arrays [T, row] whose rows behind the last sequence become zero, in one launch. `end`: where that is, in elements, on
// the device.
struct Tail {
  TensorView array;
  const int32_t* end;
};
absl::Status ZeroTails(std::initializer_list<Tail> tails, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
