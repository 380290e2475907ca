// The implementations behind the rms_norm dispatch: for rms_norm.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/rms_norm/rms_norm.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Forward(const RmsNormForward& args, Stream stream);
absl::Status Backward(const RmsNormBackward& args, Stream stream);
}  // namespace cpu

namespace cuda {
absl::Status Forward(const RmsNormForward& args, Stream stream);
absl::Status Backward(const RmsNormBackward& args, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
