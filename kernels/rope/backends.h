// The implementations behind the rope dispatch: for rope.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/rope/rope.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Run(const RotaryTable& args, Stream stream);
absl::Status Forward(const RopeForward& args, Stream stream);
absl::Status Backward(const RopeBackward& args, Stream stream);
}  // namespace cpu

namespace cuda {
absl::Status Run(const RotaryTable& args, Stream stream);
absl::Status Forward(const RopeForward& args, Stream stream);
absl::Status Backward(const RopeBackward& args, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
