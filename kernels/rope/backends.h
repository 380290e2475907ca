// The implementations behind the rope dispatch: for rope.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/rope/rope.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Forward(const Rope& args, Stream stream);
absl::Status Backward(const Rope& args, Stream stream);
}  // namespace cpu

namespace aten {  // any device
absl::Status Forward(const Rope& args, Stream stream);
absl::Status Backward(const Rope& args, Stream stream);
}  // namespace aten

}  // namespace sluice::kernels
