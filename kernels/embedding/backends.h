// The implementations behind the embedding dispatch: for embedding.cc and the tests that hold one against the other.
#pragma once

#include "absl/status/status.h"
#include "kernels/embedding/embedding.h"

namespace sluice::kernels {

namespace cpu {
absl::Status Forward(const EmbeddingForward& args, Stream stream);
absl::Status Backward(const EmbeddingBackward& args, Stream stream);
}  // namespace cpu

namespace cuda {
absl::Status Forward(const EmbeddingForward& args, Stream stream);
absl::Status Backward(const EmbeddingBackward& args, Stream stream);
}  // namespace cuda

}  // namespace sluice::kernels
