// The implementations behind the matmul dispatch: for matmul.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/matmul/matmul.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Run(const MatMul& args, Stream stream);
}  // namespace cpu

namespace cuda {  // cuBLASLt
absl::Status Run(const MatMul& args, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
