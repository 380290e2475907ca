// The implementations behind the distillation dispatch: for distillation.cc and the tests that hold one against the
// other.
#pragma once

#include "absl/status/status.h"
#include "kernels/distillation/distillation.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Forward(const DistillationForward& args, Stream stream);
absl::Status ForwardBackward(const DistillationForwardBackward& args, Stream stream);
}  // namespace cpu

namespace aten {  // any device
absl::Status Forward(const DistillationForward& args, Stream stream);
absl::Status ForwardBackward(const DistillationForwardBackward& args, Stream stream);
}  // namespace aten

}  // namespace sluice::kernels
