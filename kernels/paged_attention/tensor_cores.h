// Paged attention on tensor cores: for what most models have.
#pragma once

#include "absl/status/status.h"
#include "kernels/paged_attention/paged_attention.h"

namespace sluice::kernels::cuda {

// Of bf16, with heads of 64 or 128 elements, rows that begin at 16 bytes, and caches laid out alike.
bool FitsTensorCores(const PagedAttention& args);

// As Forward. REQUIRES: FitsTensorCores(args), and it has a token.
absl::Status ForwardOnTensorCores(const PagedAttention& args, Stream stream);

}  // namespace sluice::kernels::cuda
