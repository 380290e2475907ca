// One decoder layer, forward and backward, over buffers of the caller.
//
//   r1 = r0' + branch            the residual stream at the layer's entry; branch: the layer before's MLP output
//   a  = attention(rope(qk_norm(norm1(r1) Wqkv^T + b)))
//   r2 = r1 + a Wo^T + b
//   branch' = swiglu(norm2(r2) Wgate_up^T + b) Wdown^T + b        added to r2 by the next layer's norm
//
// The add of a branch to the residual stream is fused into the norm that follows it. What a layer keeps from forward to
// backward is a choice (Recompute); the rest is computed again, where it can be inside a kernel that reads the inputs
// anyway. T = token rows in use, H, I, Q, KV, D as in model_weights.h.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/device/device_memory.h"
#include "engine/model/model_config.h"
#include "engine/model/model_weights.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

// What is not kept for the backward.
enum class Recompute : uint8_t {
  kNone,       // nothing
  kSelective,  // the outputs of the norms and of SwiGLU: 2 H + I of about 4 H + 2 Q + 2 KV + 3 I elements a token
  kFull,       // all but the layer's entry r1: the forward runs twice
};

// What one layer leaves for its backward, for up to T token rows. Which of these are the layer's own and which all
// layers share follows from Recompute.
struct LayerActivations {
  kernels::TensorView residual_in;   // [T, H] r1
  kernels::TensorView rstd_in;       // [T] fp32
  kernels::TensorView normed_in;     // [T, H] norm1(r1)
  kernels::TensorView qkv;           // [T, Q + 2 KV]: the projection; the backward's gradient of it takes its place
  kernels::TensorView q;             // [T, Q] normalised and rotated
  kernels::TensorView k;             // [T, KV] likewise
  kernels::TensorView v;             // [T, KV]
  kernels::TensorView q_rstd;        // [T * heads] fp32; empty without qk-norm
  kernels::TensorView k_rstd;        // [T * kv_heads] fp32; empty without qk-norm
  kernels::TensorView attention;     // [T, Q]
  kernels::TensorView logsumexp;     // [heads * T] fp32
  kernels::TensorView residual_mid;  // [T, H] r2
  kernels::TensorView rstd_mid;      // [T] fp32
  kernels::TensorView normed_mid;    // [T, H] norm2(r2)
  kernels::TensorView gate_up;       // [T, 2 I]; the backward's gradient of it takes its place
  kernels::TensorView swiglu;        // [T, I]

  // The buffers that all layers share.
  static LayerActivations CarveShared(const ModelConfig& config, kernels::DType dtype, int64_t token_slots,
                                      Recompute recompute, Carver& carver);
  // One layer's own, and `shared` for the rest.
  static LayerActivations Carve(const ModelConfig& config, kernels::DType dtype, int64_t token_slots,
                                Recompute recompute, const LayerActivations& shared, Carver& carver);
};

// Buffers of the backward that all layers share.
struct LayerGradients {
  kernels::TensorView residual;   // [T, H] in and out of a layer: the residual stream's gradient
  kernels::TensorView normed;     // [T, H]
  kernels::TensorView swiglu;     // [T, I]
  kernels::TensorView attention;  // [T, Q]
  kernels::TensorView q;          // [T, Q]
  kernels::TensorView k;          // [T, KV]
  kernels::TensorView v;          // [T, KV]

  static LayerGradients Carve(const ModelConfig& config, kernels::DType dtype, int64_t token_slots, Carver& carver);
};

// What a pass over the layers needs beside weights and buffers.
struct LayerContext {
  const ModelConfig* config = nullptr;
  int64_t tokens = 0;                   // T: rows in use
  kernels::ConstTensorView cos_sin;     // [T, D] fp32: the rotary angles (kernels/rope/rope.h)
  std::span<const int32_t> cu_seqlens;  // [S + 1] on the host
  kernels::ConstTensorView bounds;      // [4, B + 1] int32 on a CUDA device (kernels/attention/attention.h); else empty
  int64_t longest = 0;                  // with bounds: no sequence is longer
  bool deterministic = true;            // of attention's backward
  bool accumulate = true;               // false: the backward overwrites the gradients of the matrices
  Recompute recompute = Recompute::kSelective;
  kernels::Stream stream;
};

// What scores are multiplied with: 1 / sqrt(D).
float AttentionScale(const ModelConfig& config);

// Queries, keys and values as [T, heads, D] views of what AttentionInputs computed.
struct AttentionHeads {
  kernels::TensorView q, k, v;
};
AttentionHeads HeadsOf(const LayerContext& context, const LayerActivations& activations);

// The parts of a layer's forward, so that generation puts its cached attention in the place of SelfAttention.
// `branch` [T, H]: in, what is to be added to the residual stream; out, the layer's MLP output.
// AttentionInputs: with an empty `previous_residual` residual_in already holds r1 and no branch is added;
// else it is the layer before's residual_mid.
absl::Status AttentionInputs(const LayerContext& context, kernels::ConstTensorView previous_residual,
                             const LayerWeights& weights, const LayerActivations& activations,
                             kernels::TensorView branch);
absl::Status SelfAttention(const LayerContext& context, int64_t window, const LayerActivations& activations);
absl::Status AttentionOutputAndGates(const LayerContext& context, const LayerWeights& weights,
                                     const LayerActivations& activations, kernels::TensorView branch);
absl::Status DownProjection(const LayerContext& context, const LayerWeights& weights,
                            const LayerActivations& activations, kernels::TensorView branch);

// The whole layer backward. gradients.residual holds d(loss)/d(r2 + branch') and receives d(loss)/d(r1).
// Gradients of norms and biases are accumulated, those of matrices as context.accumulate says. `branch` is scratch.
absl::Status LayerBackward(const LayerContext& context, int64_t window, const LayerWeights& weights,
                           const LayerWeights& weight_gradients, const LayerActivations& activations,
                           kernels::TensorView branch, const LayerGradients& gradients);

}  // namespace sluice::engine
