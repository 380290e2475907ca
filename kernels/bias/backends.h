// The implementations behind the bias dispatch: for bias.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/bias/bias.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Backward(const BiasBackward& args, Stream stream);
}  // namespace cpu

namespace cuda {
absl::Status Backward(const BiasBackward& args, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
