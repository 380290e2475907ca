#include "engine/model/decoder_layer.h"

#include <cmath>

#include "common/status_macros.h"
#include "engine/model/linear.h"
#include "kernels/attention/attention.h"
#include "kernels/flat/flat.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/swiglu/swiglu.h"

namespace sluice::engine {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::TensorView;

// The first T rows; an absent buffer stays absent.
TensorView Used(TensorView buffer, int64_t tokens) { return buffer.empty() ? buffer : buffer.Rows(0, tokens); }

TensorView UsedVector(TensorView buffer, kernels::Shape shape) {
  return TensorView(buffer.data, buffer.dtype, shape, buffer.device);
}

// Columns begin.. of [T, columns] as [T, heads, D].
TensorView Heads(TensorView matrix, int64_t begin, int64_t heads, int64_t head_dim) {
  return matrix.Columns(begin, begin + heads * head_dim).Reshaped({matrix.dim(0), heads, head_dim});
}

float AttentionScale(const ModelConfig& config) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
}

TensorView LogSumExp(const LayerContext& context, const LayerActivations& activations) {
  return UsedVector(activations.logsumexp, {context.config->heads, context.tokens});
}

// norm1 or norm2 without the add, to have its output again in the backward.
absl::Status Renormalise(const LayerContext& context, TensorView residual, TensorView weight, TensorView rstd,
                         TensorView normed) {
  return kernels::Forward(kernels::RmsNormForward{.x = Used(residual, context.tokens),
                                                  .weight = weight,
                                                  .eps = context.config->rms_norm_eps,
                                                  .y = Used(normed, context.tokens),
                                                  .rstd = Used(rstd, context.tokens)},
                          context.stream);
}

absl::Status NormBackward(const LayerContext& context, TensorView residual, TensorView weight, TensorView rstd,
                          TensorView weight_gradient, const LayerGradients& gradients) {
  return kernels::Backward(kernels::RmsNormBackward{.dy = Used(gradients.normed, context.tokens),
                                                    .r = Used(residual, context.tokens),
                                                    .weight = weight,
                                                    .rstd = Used(rstd, context.tokens),
                                                    .dr = Used(gradients.residual, context.tokens),
                                                    .dweight = weight_gradient},
                           context.stream);
}

// The norm of every query or key head (Qwen3): `raw` [T, heads, D] to `out`.
absl::Status HeadNorm(const LayerContext& context, TensorView raw, TensorView weight, TensorView rstd, TensorView out) {
  return kernels::Forward(kernels::RmsNormForward{.x = raw,
                                                  .weight = weight,
                                                  .eps = context.config->rms_norm_eps,
                                                  .y = out,
                                                  .rstd = UsedVector(rstd, {raw.dim(0), raw.dim(1)})},
                          context.stream);
}

absl::Status HeadNormBackward(const LayerContext& context, TensorView dout, TensorView raw, TensorView weight,
                              TensorView rstd, TensorView draw, TensorView dweight) {
  return kernels::Backward(kernels::RmsNormBackward{.dy = dout,
                                                    .r = raw,
                                                    .weight = weight,
                                                    .rstd = UsedVector(rstd, {raw.dim(0), raw.dim(1)}),
                                                    .dr = draw,
                                                    .dweight = dweight},
                           context.stream);
}

absl::Status MlpBackward(const LayerContext& context, const LayerWeights& weights, const LayerWeights& weight_gradients,
                         const LayerActivations& activations, const LayerScratch& scratch,
                         const LayerGradients& gradients) {
  const int64_t tokens = context.tokens;
  const TensorView gate_up = Used(activations.gate_up, tokens);
  const TensorView swiglu = Used(scratch.swiglu, tokens);
  const TensorView dswiglu = Used(gradients.swiglu, tokens);
  RETURN_IF_ERROR(kernels::Forward(kernels::SwigluForward{.gate_up = gate_up, .y = swiglu}, context.stream));
  RETURN_IF_ERROR(Run(LinearBackward{.dy = Used(gradients.residual, tokens),
                                     .x = swiglu,
                                     .weight = weights.down,
                                     .dx = dswiglu,
                                     .dweight = weight_gradients.down,
                                     .dbias = weight_gradients.down_bias},
                      context.stream));
  RETURN_IF_ERROR(kernels::Backward(kernels::SwigluBackward{.dy = dswiglu, .gate_up = gate_up, .dgate_up = gate_up},
                                    context.stream));
  RETURN_IF_ERROR(Renormalise(context, activations.residual_mid, weights.post_attention_norm, activations.rstd_mid,
                              scratch.normed));
  RETURN_IF_ERROR(Run(LinearBackward{.dy = gate_up,
                                     .x = Used(scratch.normed, tokens),
                                     .weight = weights.gate_up,
                                     .dx = Used(gradients.normed, tokens),
                                     .dweight = weight_gradients.gate_up,
                                     .dbias = weight_gradients.gate_up_bias},
                      context.stream));
  return NormBackward(context, activations.residual_mid, weights.post_attention_norm, activations.rstd_mid,
                      weight_gradients.post_attention_norm, gradients);
}

absl::Status AttentionBackward(const LayerContext& context, int64_t window, const LayerWeights& weights,
                               const LayerWeights& weight_gradients, const LayerActivations& activations,
                               const LayerScratch& scratch, const LayerGradients& gradients) {
  const ModelConfig& config = *context.config;
  const int64_t tokens = context.tokens;
  const int64_t query_size = config.query_size();
  const TensorView attention = Used(activations.attention, tokens);
  const TensorView dattention = Used(gradients.attention, tokens);
  RETURN_IF_ERROR(Run(LinearBackward{.dy = Used(gradients.residual, tokens),
                                     .x = attention,
                                     .weight = weights.output,
                                     .dx = dattention,
                                     .dweight = weight_gradients.output,
                                     .dbias = weight_gradients.output_bias},
                      context.stream));

  const AttentionHeads heads = HeadsOf(context, activations);
  const TensorView dqkv = Used(gradients.qkv, tokens);
  // With qk-norm the rotated queries and keys have gradients of their own; values never do.
  const TensorView drotated = config.qk_norm ? Used(gradients.qk, tokens) : dqkv;
  const TensorView dq = Heads(drotated, 0, config.heads, config.head_dim);
  const TensorView dk = Heads(drotated, query_size, config.kv_heads, config.head_dim);
  // The head norms' backward adds to the raw queries' and keys' gradients.
  if (config.qk_norm) RETURN_IF_ERROR(kernels::Fill(dqkv, 0.0f, context.stream));
  RETURN_IF_ERROR(kernels::Backward(
      kernels::AttentionBackward{.dout = dattention.Reshaped({tokens, config.heads, config.head_dim}),
                                 .q = heads.q,
                                 .k = heads.k,
                                 .v = heads.v,
                                 .out = attention.Reshaped({tokens, config.heads, config.head_dim}),
                                 .logsumexp = LogSumExp(context, activations),
                                 .cu_seqlens = context.cu_seqlens,
                                 .scale = AttentionScale(config),
                                 .window = window,
                                 .dq = dq,
                                 .dk = dk,
                                 .dv = Heads(dqkv, query_size + config.kv_size(), config.kv_heads, config.head_dim)},
      context.stream));
  RETURN_IF_ERROR(kernels::Backward(
      kernels::Rope{.q = dq, .k = dk, .positions = context.positions, .inv_freq = context.inv_freq}, context.stream));
  if (config.qk_norm) {
    const TensorView qkv = Used(activations.qkv, tokens);
    RETURN_IF_ERROR(HeadNormBackward(context, dq, Heads(qkv, 0, config.heads, config.head_dim), weights.q_norm,
                                     activations.q_rstd, Heads(dqkv, 0, config.heads, config.head_dim),
                                     weight_gradients.q_norm));
    RETURN_IF_ERROR(HeadNormBackward(
        context, dk, Heads(qkv, query_size, config.kv_heads, config.head_dim), weights.k_norm, activations.k_rstd,
        Heads(dqkv, query_size, config.kv_heads, config.head_dim), weight_gradients.k_norm));
  }

  RETURN_IF_ERROR(
      Renormalise(context, activations.residual_in, weights.input_norm, activations.rstd_in, scratch.normed));
  RETURN_IF_ERROR(Run(LinearBackward{.dy = dqkv,
                                     .x = Used(scratch.normed, tokens),
                                     .weight = weights.qkv,
                                     .dx = Used(gradients.normed, tokens),
                                     .dweight = weight_gradients.qkv,
                                     .dbias = weight_gradients.qkv_bias},
                      context.stream));
  return NormBackward(context, activations.residual_in, weights.input_norm, activations.rstd_in,
                      weight_gradients.input_norm, gradients);
}

}  // namespace

LayerActivations LayerActivations::Carve(const ModelConfig& config, DType dtype, int64_t token_slots, Carver& carver) {
  const int64_t query_key_size = config.query_size() + config.kv_size();
  LayerActivations a;
  a.residual_in = carver.Take(dtype, {token_slots, config.hidden_size});
  a.rstd_in = carver.Take(DType::kFloat32, {token_slots});
  a.qkv = carver.Take(dtype, {token_slots, config.qkv_size()});
  if (config.qk_norm) {
    a.qk = carver.Take(dtype, {token_slots, query_key_size});
    a.q_rstd = carver.Take(DType::kFloat32, {token_slots * config.heads});
    a.k_rstd = carver.Take(DType::kFloat32, {token_slots * config.kv_heads});
  }
  a.attention = carver.Take(dtype, {token_slots, config.query_size()});
  a.logsumexp = carver.Take(DType::kFloat32, {token_slots * config.heads});
  a.residual_mid = carver.Take(dtype, {token_slots, config.hidden_size});
  a.rstd_mid = carver.Take(DType::kFloat32, {token_slots});
  a.gate_up = carver.Take(dtype, {token_slots, 2 * config.intermediate_size});
  return a;
}

LayerScratch LayerScratch::Carve(const ModelConfig& config, DType dtype, int64_t token_slots, Carver& carver) {
  LayerScratch s;
  s.normed = carver.Take(dtype, {token_slots, config.hidden_size});
  s.branch = carver.Take(dtype, {token_slots, config.hidden_size});
  s.swiglu = carver.Take(dtype, {token_slots, config.intermediate_size});
  return s;
}

LayerGradients LayerGradients::Carve(const ModelConfig& config, DType dtype, int64_t token_slots, Carver& carver) {
  LayerGradients g;
  g.residual = carver.Take(dtype, {token_slots, config.hidden_size});
  g.normed = carver.Take(dtype, {token_slots, config.hidden_size});
  g.swiglu = carver.Take(dtype, {token_slots, config.intermediate_size});
  g.attention = carver.Take(dtype, {token_slots, config.query_size()});
  g.qkv = carver.Take(dtype, {token_slots, config.qkv_size()});
  if (config.qk_norm) g.qk = carver.Take(dtype, {token_slots, config.query_size() + config.kv_size()});
  return g;
}

AttentionHeads HeadsOf(const LayerContext& context, const LayerActivations& activations) {
  const ModelConfig& config = *context.config;
  const TensorView qkv = Used(activations.qkv, context.tokens);
  const TensorView qk = config.qk_norm ? Used(activations.qk, context.tokens) : qkv;
  return {.q = Heads(qk, 0, config.heads, config.head_dim),
          .k = Heads(qk, config.query_size(), config.kv_heads, config.head_dim),
          .v = Heads(qkv, config.query_size() + config.kv_size(), config.kv_heads, config.head_dim)};
}

absl::Status AttentionInputs(const LayerContext& context, bool first, ConstTensorView previous_residual,
                             const LayerWeights& weights, const LayerActivations& activations,
                             const LayerScratch& scratch) {
  const ModelConfig& config = *context.config;
  const int64_t tokens = context.tokens;
  const TensorView normed = Used(scratch.normed, tokens);
  kernels::RmsNormForward norm{
      .weight = weights.input_norm, .eps = config.rms_norm_eps, .y = normed, .rstd = Used(activations.rstd_in, tokens)};
  if (first) {
    norm.x = Used(activations.residual_in, tokens);
  } else {
    norm.x = Used(scratch.branch, tokens);
    norm.residual = previous_residual.Rows(0, tokens);
    norm.residual_out = Used(activations.residual_in, tokens);
  }
  RETURN_IF_ERROR(kernels::Forward(norm, context.stream));

  const TensorView qkv = Used(activations.qkv, tokens);
  RETURN_IF_ERROR(LinearForward(normed, weights.qkv, weights.qkv_bias, qkv, context.stream));
  const AttentionHeads heads = HeadsOf(context, activations);
  if (config.qk_norm) {
    RETURN_IF_ERROR(
        HeadNorm(context, Heads(qkv, 0, config.heads, config.head_dim), weights.q_norm, activations.q_rstd, heads.q));
    RETURN_IF_ERROR(HeadNorm(context, Heads(qkv, config.query_size(), config.kv_heads, config.head_dim), weights.k_norm,
                             activations.k_rstd, heads.k));
  }
  return kernels::Forward(
      kernels::Rope{.q = heads.q, .k = heads.k, .positions = context.positions, .inv_freq = context.inv_freq},
      context.stream);
}

absl::Status SelfAttention(const LayerContext& context, int64_t window, const LayerActivations& activations) {
  const ModelConfig& config = *context.config;
  const AttentionHeads heads = HeadsOf(context, activations);
  return kernels::Forward(
      kernels::AttentionForward{
          .q = heads.q,
          .k = heads.k,
          .v = heads.v,
          .cu_seqlens = context.cu_seqlens,
          .scale = AttentionScale(config),
          .window = window,
          .out = Used(activations.attention, context.tokens).Reshaped({context.tokens, config.heads, config.head_dim}),
          .logsumexp = LogSumExp(context, activations)},
      context.stream);
}

absl::Status AttentionOutputAndMlp(const LayerContext& context, const LayerWeights& weights,
                                   const LayerActivations& activations, const LayerScratch& scratch) {
  const int64_t tokens = context.tokens;
  const TensorView branch = Used(scratch.branch, tokens);
  const TensorView normed = Used(scratch.normed, tokens);
  const TensorView gate_up = Used(activations.gate_up, tokens);
  const TensorView swiglu = Used(scratch.swiglu, tokens);
  RETURN_IF_ERROR(
      LinearForward(Used(activations.attention, tokens), weights.output, weights.output_bias, branch, context.stream));
  RETURN_IF_ERROR(kernels::Forward(kernels::RmsNormForward{.x = branch,
                                                           .residual = Used(activations.residual_in, tokens),
                                                           .weight = weights.post_attention_norm,
                                                           .eps = context.config->rms_norm_eps,
                                                           .residual_out = Used(activations.residual_mid, tokens),
                                                           .y = normed,
                                                           .rstd = Used(activations.rstd_mid, tokens)},
                                   context.stream));
  RETURN_IF_ERROR(LinearForward(normed, weights.gate_up, weights.gate_up_bias, gate_up, context.stream));
  RETURN_IF_ERROR(kernels::Forward(kernels::SwigluForward{.gate_up = gate_up, .y = swiglu}, context.stream));
  return LinearForward(swiglu, weights.down, weights.down_bias, branch, context.stream);
}

absl::Status LayerBackward(const LayerContext& context, int64_t window, const LayerWeights& weights,
                           const LayerWeights& weight_gradients, const LayerActivations& activations,
                           const LayerScratch& scratch, const LayerGradients& gradients) {
  RETURN_IF_ERROR(MlpBackward(context, weights, weight_gradients, activations, scratch, gradients));
  return AttentionBackward(context, window, weights, weight_gradients, activations, scratch, gradients);
}

}  // namespace sluice::engine
