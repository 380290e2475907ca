// One decoder layer, forward and backward, over buffers of the caller.
//
//   r1 = r0' + branch            the residual stream at the layer's entry; branch: the layer before's MLP output
//   a  = attention(rope(qk_norm(norm1(r1) Wqkv^T + b)))
//   r2 = r1 + a Wo^T + b
//   branch' = swiglu(norm2(r2) Wgate_up^T + b) Wdown^T + b        added to r2 by the next layer's norm
//
// The add of a branch to the residual stream is fused into the norm that follows it. Kept for the backward: r1, r2, the
// projections before their nonlinearities, attention's output and statistics; norms' and SwiGLU's outputs are computed
// again. T = token rows in use, H, I, Q, KV, D as in model_weights.h.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/model/device_memory.h"
#include "engine/model/model_config.h"
#include "engine/model/model_weights.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

// What one layer keeps from forward to backward, for up to T token rows.
struct LayerActivations {
  kernels::TensorView residual_in;   // [T, H] r1
  kernels::TensorView rstd_in;       // [T] fp32
  kernels::TensorView qkv;           // [T, Q + 2 KV]: the projection; rotated in place where there is no qk-norm
  kernels::TensorView qk;            // [T, Q + KV]: normalised and rotated queries and keys; empty without qk-norm
  kernels::TensorView q_rstd;        // [T * heads] fp32; empty without qk-norm
  kernels::TensorView k_rstd;        // [T * kv_heads] fp32; empty without qk-norm
  kernels::TensorView attention;     // [T, Q]
  kernels::TensorView logsumexp;     // [heads * T] fp32
  kernels::TensorView residual_mid;  // [T, H] r2
  kernels::TensorView rstd_mid;      // [T] fp32
  kernels::TensorView gate_up;       // [T, 2 I]

  static LayerActivations Carve(const ModelConfig& config, kernels::DType dtype, int64_t token_slots, Carver& carver);
};

// Buffers that all layers share.
struct LayerScratch {
  kernels::TensorView normed;  // [T, H]
  kernels::TensorView branch;  // [T, H] in and out of a layer: what is to be added to the residual stream
  kernels::TensorView swiglu;  // [T, I]

  static LayerScratch Carve(const ModelConfig& config, kernels::DType dtype, int64_t token_slots, Carver& carver);
};

// Buffers of the backward that all layers share.
struct LayerGradients {
  kernels::TensorView residual;   // [T, H] in and out of a layer: the residual stream's gradient
  kernels::TensorView normed;     // [T, H]
  kernels::TensorView swiglu;     // [T, I]
  kernels::TensorView attention;  // [T, Q]
  kernels::TensorView qkv;        // [T, Q + 2 KV]
  kernels::TensorView qk;         // [T, Q + KV]; empty without qk-norm

  static LayerGradients Carve(const ModelConfig& config, kernels::DType dtype, int64_t token_slots, Carver& carver);
};

// What a pass over the layers needs beside weights and buffers.
struct LayerContext {
  const ModelConfig* config = nullptr;
  int64_t tokens = 0;                   // T: rows in use
  kernels::ConstTensorView positions;   // [T] int32
  kernels::ConstTensorView inv_freq;    // [D / 2] fp32
  std::span<const int32_t> cu_seqlens;  // [S + 1] on the host
  kernels::Stream stream;
};

// Queries, keys and values as [T, heads, D] views of what AttentionInputs computed.
struct AttentionHeads {
  kernels::TensorView q, k, v;
};
AttentionHeads HeadsOf(const LayerContext& context, const LayerActivations& activations);

// The three parts of a layer's forward, so that generation puts its cached attention in the middle's place.
// AttentionInputs: for the first layer (`first`) residual_in already holds the embeddings and no branch is added;
// `previous_residual` is the layer before's residual_mid.
absl::Status AttentionInputs(const LayerContext& context, bool first, kernels::ConstTensorView previous_residual,
                             const LayerWeights& weights, const LayerActivations& activations,
                             const LayerScratch& scratch);
absl::Status SelfAttention(const LayerContext& context, int64_t window, const LayerActivations& activations);
absl::Status AttentionOutputAndMlp(const LayerContext& context, const LayerWeights& weights,
                                   const LayerActivations& activations, const LayerScratch& scratch);

// The whole layer backward. gradients.residual holds d(loss)/d(r2 + branch') and receives d(loss)/d(r1).
// Weight gradients are accumulated. activations.gate_up and scratch are overwritten.
absl::Status LayerBackward(const LayerContext& context, int64_t window, const LayerWeights& weights,
                           const LayerWeights& weight_gradients, const LayerActivations& activations,
                           const LayerScratch& scratch, const LayerGradients& gradients);

}  // namespace sluice::engine
