// The head's forward whose logits never leave the multiprocessor: for bf16 on CUDA.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace sluice::kernels::cuda {

// Whether ScoreFused takes them: bf16 rows of whole 16 bytes.
bool CanScoreFused(const CrossEntropyInputs& in);

// As Forward. `workspace`: `workspace_bytes` at 256 bytes, enough for one row of CrossEntropyPieces at least. Does not
// zero what is not scored.
absl::Status ScoreFused(const CrossEntropyForward& args, void* workspace, int64_t workspace_bytes, Stream stream);

}  // namespace sluice::kernels::cuda
