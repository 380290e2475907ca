// The implementations behind the adamw dispatch: for adamw.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/adamw/adamw.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Run(const DecideUpdate& args, Stream stream);
absl::Status Run(const AdamW& args, Stream stream);
absl::Status Run(const SplitMaster& args, Stream stream);
absl::Status Run(const JoinMaster& args, Stream stream);
}  // namespace cpu

namespace cuda {
absl::Status Run(const DecideUpdate& args, Stream stream);
absl::Status Run(const AdamW& args, Stream stream);
absl::Status Run(const SplitMaster& args, Stream stream);
absl::Status Run(const JoinMaster& args, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
