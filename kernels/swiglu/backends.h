// The implementations behind the swiglu dispatch: for swiglu.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/swiglu/swiglu.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Forward(const SwigluForward& args, Stream stream);
absl::Status Backward(const SwigluBackward& args, Stream stream);
}  // namespace cpu

namespace cuda {
absl::Status Forward(const SwigluForward& args, Stream stream);
absl::Status Backward(const SwigluBackward& args, Stream stream);

// Whether RunFused takes them, and is faster than the product and Forward. The shapes agree.
bool CanFuse(const SwigluProjection& args);
absl::Status RunFused(const SwigluProjection& args, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
