// The implementations behind the cross_entropy dispatch: for cross_entropy.cc and the tests that hold one against the
// other.
#pragma once

#include "absl/status/status.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Forward(const CrossEntropyForward& args, Stream stream);
absl::Status Backward(const CrossEntropyBackward& args, Stream stream);
absl::Status ForwardBackward(const CrossEntropyForwardBackward& args, Stream stream);
}  // namespace cpu

namespace cuda {
absl::Status Forward(const CrossEntropyForward& args, Stream stream);
absl::Status Backward(const CrossEntropyBackward& args, Stream stream);
absl::Status ForwardBackward(const CrossEntropyForwardBackward& args, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
