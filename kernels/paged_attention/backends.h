// The implementations behind the paged attention dispatch: for paged_attention.cc and the tests that hold one against
// the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/paged_attention/paged_attention.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Run(const PagedAppend& args, Stream stream);
absl::Status Forward(const PagedAttention& args, Stream stream);
}  // namespace cpu

namespace cuda {
absl::Status Run(const PagedAppend& args, Stream stream);
absl::Status Forward(const PagedAttention& args, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
