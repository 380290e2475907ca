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

}  // namespace sluice::kernels
