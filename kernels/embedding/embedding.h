// Token embedding: gather rows of the table; the backward adds rows of the gradient into the table's gradient.
#pragma once

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// T = tokens, V = vocabulary size, H = hidden size. All dense.
struct EmbeddingForward {
  ConstTensorView ids;     // [T] int32, 0 <= id < V
  ConstTensorView weight;  // [V, H] bf16 or fp32
  TensorView y;            // [T, H] as weight
};

struct EmbeddingBackward {
  ConstTensorView ids;  // [T] int32
  ConstTensorView dy;   // [T, H] bf16 or fp32
  TensorView dweight;   // [V, H] fp32: accumulated into. Rows of ids that do not occur are not touched.
};

// Deterministic: the gradients of one id are added in the order of the tokens; on CUDA in groups that are fixed by all
// ids, then the groups' sums in their order.
//
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices, and on the CPU for an id out of
// range (naming its slot); on CUDA ids are the caller's to check.
absl::Status Forward(const EmbeddingForward& args, Stream stream);
absl::Status Backward(const EmbeddingBackward& args, Stream stream);

}  // namespace sluice::kernels
