// The gated activation of Llama's feed-forward network, forward and backward.
//
//   y = silu(gate) * up,   silu(z) = z * sigmoid(z)
//   dup = dy * silu(gate), dgate = dy * up * sigmoid(gate) * (1 + gate * (1 - sigmoid(gate)))
//
// Source: Shazeer 2020 (GLU Variants), SwiGLU without bias. In fp32 whatever the storage type; results rounded once.
#pragma once

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// T = tokens, I = intermediate size. Gate and up come packed, as one projection makes them: columns 0..I-1 of gate_up
// are the gate, columns I..2I-1 are up. All dense.
struct SwigluForward {
  ConstTensorView gate_up;  // [T, 2I] bf16 or fp32
  TensorView y;             // [T, I] as gate_up; must not alias gate_up
};

struct SwigluBackward {
  ConstTensorView dy;       // [T, I] as gate_up
  ConstTensorView gate_up;  // [T, 2I] forward's input
  TensorView dgate_up;      // [T, 2I] as gate_up: overwritten. May alias gate_up.
  TensorView y;             // [T, I] as gate_up: forward's y once more, for who did not keep it; or empty
};

// The projection that makes gate and up, and the activation: gate_up = x weight^T + bias, y as above. H = hidden size.
struct SwigluProjection {
  ConstTensorView x;       // [T, H] bf16 or fp32
  ConstTensorView weight;  // [2I, H] as x: the gate's rows, then up's
  ConstTensorView bias;    // [2I] as x, or empty
  TensorView gate_up;      // [T, 2I] as x: overwritten; for the backward
  TensorView y;            // [T, I] as x: overwritten
};

// Deterministic. Return InvalidArgument, naming the argument, for mismatched shapes, types or devices.
absl::Status Forward(const SwigluForward& args, Stream stream);
absl::Status Backward(const SwigluBackward& args, Stream stream);

// The product (matmul.h) and Forward. On CUDA one kernel of our own does both, in bf16, without a bias, with at least
// 1,024 tokens, 384 <= H <= 2,048, and sizes that are multiples of 8.
absl::Status Forward(const SwigluProjection& args, Stream stream);

}  // namespace sluice::kernels
