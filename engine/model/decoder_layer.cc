#include "engine/model/decoder_layer.h"

#include <cmath>

#include "common/status_macros.h"
#include "engine/model/linear.h"
#include "kernels/attention/attention.h"
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

// The first elements of a vector under another shape; an absent buffer stays absent.
TensorView UsedVector(TensorView buffer, kernels::Shape shape) {
  return buffer.empty() ? buffer : TensorView(buffer.data, buffer.dtype, shape, buffer.device);
}

TensorView LogSumExp(const LayerContext& context, const LayerActivations& activations) {
  return UsedVector(activations.logsumexp, {context.config->heads, context.tokens});
}

TensorView QueryRstd(const LayerContext& context, const LayerActivations& activations) {
  return UsedVector(activations.q_rstd, {context.tokens, context.config->heads});
}

TensorView KeyRstd(const LayerContext& context, const LayerActivations& activations) {
  return UsedVector(activations.k_rstd, {context.tokens, context.config->kv_heads});
}

// The buffers of a layer in one list: what each is, and whether a layer of its own has it.
LayerActivations CarveBuffers(const ModelConfig& config, DType dtype, int64_t token_slots, Carver& carver,
                              bool (*takes)(Recompute, bool qk_norm, TensorView LayerActivations::*), Recompute mode,
                              const LayerActivations& others) {
  LayerActivations a = others;
  const auto take = [&](TensorView LayerActivations::*buffer, DType type, kernels::Shape shape) {
    if (takes(mode, config.qk_norm, buffer)) a.*buffer = carver.Take(type, shape);
  };
  const int64_t t = token_slots, hidden = config.hidden_size, intermediate = config.intermediate_size;
  using A = LayerActivations;
  take(&A::residual_in, dtype, {t, hidden});
  take(&A::rstd_in, DType::kFloat32, {t});
  take(&A::normed_in, dtype, {t, hidden});
  take(&A::qkv, dtype, {t, config.qkv_size()});
  take(&A::q, dtype, {t, config.query_size()});
  take(&A::k, dtype, {t, config.kv_size()});
  take(&A::v, dtype, {t, config.kv_size()});
  if (config.qk_norm) {
    take(&A::q_rstd, DType::kFloat32, {t * config.heads});
    take(&A::k_rstd, DType::kFloat32, {t * config.kv_heads});
  }
  take(&A::attention, dtype, {t, config.query_size()});
  take(&A::logsumexp, DType::kFloat32, {t * config.heads});
  take(&A::residual_mid, dtype, {t, hidden});
  take(&A::rstd_mid, DType::kFloat32, {t});
  take(&A::normed_mid, dtype, {t, hidden});
  take(&A::gate_up, dtype, {t, 2 * intermediate});
  take(&A::swiglu, dtype, {t, intermediate});
  return a;
}

// Whether each layer has a buffer of its own, under `mode`.
bool IsKept(Recompute mode, bool qk_norm, TensorView LayerActivations::*buffer) {
  using A = LayerActivations;
  if (mode == Recompute::kFull) return buffer == &A::residual_in;
  if (buffer == &A::qkv) return qk_norm;  // the norms' backward reads it; else it only leads to q, k and v
  if (mode == Recompute::kNone) return true;
  return buffer != &A::normed_in && buffer != &A::normed_mid && buffer != &A::swiglu;
}

bool IsShared(Recompute mode, bool qk_norm, TensorView LayerActivations::*buffer) {
  return !IsKept(mode, qk_norm, buffer);
}

absl::Status NormBackward(const LayerContext& context, TensorView residual, TensorView weight, TensorView rstd,
                          TensorView normed, TensorView weight_gradient, const LayerGradients& gradients) {
  const int64_t tokens = context.tokens;
  return kernels::Backward(
      kernels::RmsNormBackward{
          .dy = Used(gradients.normed, tokens),
          .r = Used(residual, tokens),
          .weight = weight,
          .rstd = Used(rstd, tokens),
          .dr = Used(gradients.residual, tokens),
          .dweight = weight_gradient,
          .y = context.recompute == Recompute::kSelective ? Used(normed, tokens) : TensorView::Empty()},
      context.stream);
}

absl::Status MlpBackward(const LayerContext& context, const LayerWeights& weights, const LayerWeights& weight_gradients,
                         const LayerActivations& activations, const LayerGradients& gradients) {
  const int64_t tokens = context.tokens;
  const TensorView dresidual = Used(gradients.residual, tokens);
  const TensorView gate_up = Used(activations.gate_up, tokens);
  const TensorView swiglu = Used(activations.swiglu, tokens);
  const TensorView dswiglu = Used(gradients.swiglu, tokens);
  RETURN_IF_ERROR(LinearInputGradient(dresidual, weights.down, dswiglu, context.stream));
  RETURN_IF_ERROR(kernels::Backward(
      kernels::SwigluBackward{.dy = dswiglu,
                              .gate_up = gate_up,
                              .dgate_up = gate_up,
                              .y = context.recompute == Recompute::kSelective ? swiglu : TensorView::Empty()},
      context.stream));
  RETURN_IF_ERROR(Run(LinearWeightGradient{.dy = dresidual,
                                           .x = swiglu,
                                           .dweight = weight_gradients.down,
                                           .dbias = weight_gradients.down_bias,
                                           .accumulate = context.accumulate},
                      context.stream));
  RETURN_IF_ERROR(LinearInputGradient(gate_up, weights.gate_up, Used(gradients.normed, tokens), context.stream));
  RETURN_IF_ERROR(NormBackward(context, activations.residual_mid, weights.post_attention_norm, activations.rstd_mid,
                               activations.normed_mid, weight_gradients.post_attention_norm, gradients));
  return Run(LinearWeightGradient{.dy = gate_up,
                                  .x = Used(activations.normed_mid, tokens),
                                  .dweight = weight_gradients.gate_up,
                                  .dbias = weight_gradients.gate_up_bias,
                                  .accumulate = context.accumulate},
             context.stream);
}

absl::Status AttentionBackward(const LayerContext& context, int64_t window, const LayerWeights& weights,
                               const LayerWeights& weight_gradients, const LayerActivations& activations,
                               const LayerGradients& gradients) {
  const ModelConfig& config = *context.config;
  const int64_t tokens = context.tokens;
  const TensorView dresidual = Used(gradients.residual, tokens);
  const TensorView attention = Used(activations.attention, tokens);
  const TensorView dattention = Used(gradients.attention, tokens);
  RETURN_IF_ERROR(LinearInputGradient(dresidual, weights.output, dattention, context.stream));
  RETURN_IF_ERROR(Run(LinearWeightGradient{.dy = dresidual,
                                           .x = attention,
                                           .dweight = weight_gradients.output,
                                           .dbias = weight_gradients.output_bias,
                                           .accumulate = context.accumulate},
                      context.stream));

  const AttentionHeads heads = HeadsOf(context, activations);
  const kernels::Shape query_shape = heads.q.shape, key_shape = heads.k.shape;
  const TensorView dq = Used(gradients.q, tokens).Reshaped(query_shape);
  const TensorView dk = Used(gradients.k, tokens).Reshaped(key_shape);
  const TensorView dv = Used(gradients.v, tokens).Reshaped(key_shape);
  RETURN_IF_ERROR(kernels::Backward(kernels::AttentionBackward{.dout = dattention.Reshaped(query_shape),
                                                               .q = heads.q,
                                                               .k = heads.k,
                                                               .v = heads.v,
                                                               .out = attention.Reshaped(query_shape),
                                                               .logsumexp = LogSumExp(context, activations),
                                                               .cu_seqlens = context.cu_seqlens,
                                                               .bounds = context.bounds,
                                                               .longest = context.longest,
                                                               .scale = AttentionScale(config),
                                                               .window = window,
                                                               .deterministic = context.deterministic,
                                                               .dq = dq,
                                                               .dk = dk,
                                                               .dv = dv},
                                    context.stream));
  const TensorView qkv = Used(activations.qkv, tokens);
  RETURN_IF_ERROR(kernels::Backward(kernels::RopeBackward{.dq = dq,
                                                          .dk = dk,
                                                          .dv = dv,
                                                          .cos_sin = context.cos_sin,
                                                          .qkv = config.qk_norm ? qkv : TensorView::Empty(),
                                                          .q_norm = weights.q_norm,
                                                          .k_norm = weights.k_norm,
                                                          .q_rstd = QueryRstd(context, activations),
                                                          .k_rstd = KeyRstd(context, activations),
                                                          .dqkv = qkv,
                                                          .dq_norm = weight_gradients.q_norm,
                                                          .dk_norm = weight_gradients.k_norm},
                                    context.stream));
  RETURN_IF_ERROR(LinearInputGradient(qkv, weights.qkv, Used(gradients.normed, tokens), context.stream));
  RETURN_IF_ERROR(NormBackward(context, activations.residual_in, weights.input_norm, activations.rstd_in,
                               activations.normed_in, weight_gradients.input_norm, gradients));
  return Run(LinearWeightGradient{.dy = qkv,
                                  .x = Used(activations.normed_in, tokens),
                                  .dweight = weight_gradients.qkv,
                                  .dbias = weight_gradients.qkv_bias,
                                  .accumulate = context.accumulate},
             context.stream);
}

}  // namespace

float AttentionScale(const ModelConfig& config) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
}

LayerActivations LayerActivations::CarveShared(const ModelConfig& config, DType dtype, int64_t token_slots,
                                               Recompute recompute, Carver& carver) {
  return CarveBuffers(config, dtype, token_slots, carver, IsShared, recompute, {});
}

LayerActivations LayerActivations::Carve(const ModelConfig& config, DType dtype, int64_t token_slots,
                                         Recompute recompute, const LayerActivations& shared, Carver& carver) {
  return CarveBuffers(config, dtype, token_slots, carver, IsKept, recompute, shared);
}

LayerGradients LayerGradients::Carve(const ModelConfig& config, DType dtype, int64_t token_slots, Carver& carver) {
  LayerGradients g;
  g.residual = carver.Take(dtype, {token_slots, config.hidden_size});
  g.normed = carver.Take(dtype, {token_slots, config.hidden_size});
  g.swiglu = carver.Take(dtype, {token_slots, config.intermediate_size});
  g.attention = carver.Take(dtype, {token_slots, config.query_size()});
  g.q = carver.Take(dtype, {token_slots, config.query_size()});
  g.k = carver.Take(dtype, {token_slots, config.kv_size()});
  g.v = carver.Take(dtype, {token_slots, config.kv_size()});
  return g;
}

AttentionHeads HeadsOf(const LayerContext& context, const LayerActivations& activations) {
  const ModelConfig& config = *context.config;
  const int64_t tokens = context.tokens;
  return {.q = Used(activations.q, tokens).Reshaped({tokens, config.heads, config.head_dim}),
          .k = Used(activations.k, tokens).Reshaped({tokens, config.kv_heads, config.head_dim}),
          .v = Used(activations.v, tokens).Reshaped({tokens, config.kv_heads, config.head_dim})};
}

absl::Status AttentionInputs(const LayerContext& context, ConstTensorView previous_residual,
                             const LayerWeights& weights, const LayerActivations& activations, TensorView branch) {
  const ModelConfig& config = *context.config;
  const int64_t tokens = context.tokens;
  const TensorView normed = Used(activations.normed_in, tokens);
  kernels::RmsNormForward norm{
      .weight = weights.input_norm, .eps = config.rms_norm_eps, .y = normed, .rstd = Used(activations.rstd_in, tokens)};
  if (previous_residual.empty()) {
    norm.x = Used(activations.residual_in, tokens);
  } else {
    norm.x = Used(branch, tokens);
    norm.residual = previous_residual.Rows(0, tokens);
    norm.residual_out = Used(activations.residual_in, tokens);
  }
  RETURN_IF_ERROR(kernels::Forward(norm, context.stream));

  const TensorView qkv = Used(activations.qkv, tokens);
  RETURN_IF_ERROR(LinearForward(normed, weights.qkv, weights.qkv_bias, qkv, context.stream));
  const AttentionHeads heads = HeadsOf(context, activations);
  return kernels::Forward(kernels::RopeForward{.qkv = qkv,
                                               .cos_sin = context.cos_sin,
                                               .q_norm = weights.q_norm,
                                               .k_norm = weights.k_norm,
                                               .eps = config.qk_norm ? config.rms_norm_eps : 0.0f,
                                               .q_rstd = QueryRstd(context, activations),
                                               .k_rstd = KeyRstd(context, activations),
                                               .q = heads.q,
                                               .k = heads.k,
                                               .v = heads.v},
                          context.stream);
}

absl::Status SelfAttention(const LayerContext& context, int64_t window, const LayerActivations& activations) {
  const AttentionHeads heads = HeadsOf(context, activations);
  return kernels::Forward(
      kernels::AttentionForward{.q = heads.q,
                                .k = heads.k,
                                .v = heads.v,
                                .cu_seqlens = context.cu_seqlens,
                                .bounds = context.bounds,
                                .longest = context.longest,
                                .scale = AttentionScale(*context.config),
                                .window = window,
                                .out = Used(activations.attention, context.tokens).Reshaped(heads.q.shape),
                                .logsumexp = LogSumExp(context, activations)},
      context.stream);
}

absl::Status AttentionOutputAndGates(const LayerContext& context, const LayerWeights& weights,
                                     const LayerActivations& activations, TensorView branch_buffer) {
  const int64_t tokens = context.tokens;
  const TensorView branch = Used(branch_buffer, tokens);
  const TensorView normed = Used(activations.normed_mid, tokens);
  const TensorView gate_up = Used(activations.gate_up, tokens);
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
  return kernels::Forward(kernels::SwigluProjection{.x = normed,
                                                    .weight = weights.gate_up,
                                                    .bias = weights.gate_up_bias,
                                                    .gate_up = gate_up,
                                                    .y = Used(activations.swiglu, tokens)},
                          context.stream);
}

absl::Status DownProjection(const LayerContext& context, const LayerWeights& weights,
                            const LayerActivations& activations, TensorView branch) {
  return LinearForward(Used(activations.swiglu, context.tokens), weights.down, weights.down_bias,
                       Used(branch, context.tokens), context.stream);
}

absl::Status LayerBackward(const LayerContext& context, int64_t window, const LayerWeights& weights,
                           const LayerWeights& weight_gradients, const LayerActivations& activations, TensorView branch,
                           const LayerGradients& gradients) {
  if (context.recompute == Recompute::kFull) {
    RETURN_IF_ERROR(AttentionInputs(context, ConstTensorView::Empty(), weights, activations, branch));
    RETURN_IF_ERROR(SelfAttention(context, window, activations));
    RETURN_IF_ERROR(AttentionOutputAndGates(context, weights, activations, branch));
  }
  RETURN_IF_ERROR(MlpBackward(context, weights, weight_gradients, activations, gradients));
  return AttentionBackward(context, window, weights, weight_gradients, activations, gradients);
}

}  // namespace sluice::engine
