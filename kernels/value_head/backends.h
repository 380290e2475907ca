// The implementations behind the value head dispatch: for value_head.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/value_head/value_head.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Forward(const ValueHeadForward& args, Stream stream);
absl::Status Backward(const ValueHeadBackward& args, Stream stream);
}  // namespace cpu

namespace aten {  // any device
absl::Status Forward(const ValueHeadForward& args, Stream stream);
absl::Status Backward(const ValueHeadBackward& args, Stream stream);
}  // namespace aten

}  // namespace sluice::kernels
