// The one place where LibTorch's exceptions become statuses and our streams become LibTorch's.
#pragma once

#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/stream.h"

namespace sluice::kernels {

// Runs `body` without autograd, on `stream`. `kernel` opens the message of an error: ResourceExhausted when memory is
// out, Internal for anything else LibTorch throws.
absl::Status CallAten(std::string_view kernel, Stream stream, absl::FunctionRef<void()> body);

}  // namespace sluice::kernels
