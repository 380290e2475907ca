// The implementations behind the adamw dispatch: for adamw.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/adamw/adamw.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Run(const AdamW& args, Stream stream);
}  // namespace cpu

namespace aten {  // any device
absl::Status Run(const AdamW& args, Stream stream);
}  // namespace aten

}  // namespace sluice::kernels
