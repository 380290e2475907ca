#include "engine/model/causal_lm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/model/rotary.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"
#include "kernels/flat/flat.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rms_norm/rms_norm.h"

namespace sluice::engine {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::TensorView;

absl::Status CheckBatch(const MicroBatch& batch, int64_t token_slots, int64_t vocab_size) {
  const size_t slots = batch.input_ids.size();
  if (static_cast<int64_t>(slots) > token_slots) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro-batch of ", slots, " slots, the model was made for ", token_slots));
  }
  if (batch.position_ids.size() != slots || batch.labels.size() != slots) {
    return absl::InvalidArgumentError("micro-batch: input_ids, position_ids and labels differ in length");
  }
  if (batch.cu_seqlens.empty() || batch.cu_seqlens.front() != 0 ||
      !std::is_sorted(batch.cu_seqlens.begin(), batch.cu_seqlens.end()) ||
      batch.used_slots() > static_cast<int64_t>(slots)) {
    return absl::InvalidArgumentError("micro-batch: cu_seqlens must ascend from 0 to at most the number of slots");
  }
  for (size_t slot = 0; slot < slots; ++slot) {
    if (batch.input_ids[slot] < 0 || batch.input_ids[slot] >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("micro-batch: token id ", batch.input_ids[slot], " in slot ", slot,
                                                     " is outside of the vocabulary (", vocab_size, ")"));
    }
    const int32_t label = batch.labels[slot];
    if (label != kIgnoreLabel && (label < 0 || label >= vocab_size)) {
      return absl::InvalidArgumentError(absl::StrCat("micro-batch: label ", label, " in slot ", slot,
                                                     " is outside of the vocabulary (", vocab_size, ")"));
    }
    if (label != kIgnoreLabel && static_cast<int64_t>(slot) >= batch.used_slots()) {
      return absl::InvalidArgumentError(absl::StrCat("micro-batch: slot ", slot, " of the tail has a label"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

CausalLm::CausalLm(const Parameters* parameters, const CausalLmOptions& options)
    : parameters_(parameters), config_(&parameters->config()), options_(options) {}

absl::StatusOr<std::unique_ptr<CausalLm>> CausalLm::Create(const Parameters* parameters,
                                                           const CausalLmOptions& options) {
  if (options.token_slots < 1) return absl::InvalidArgumentError("token_slots must be at least 1");
  if (options.backward && !parameters->has_gradients()) {
    return absl::FailedPreconditionError("a model with a backward needs parameters with gradients");
  }
  std::unique_ptr<CausalLm> model(new CausalLm(parameters, options));
  Carver size;
  model->Carve(size);
  ASSIGN_OR_RETURN(model->memory_, DeviceMemory::Allocate(size.bytes(), parameters->device()));
  Carver carver(model->memory_);
  model->Carve(carver);

  const std::vector<float> inv_freq = RotaryInverseFrequencies(model->config_->rope, model->config_->head_dim);
  RETURN_IF_ERROR(
      CopyTensor(ConstTensorView(inv_freq.data(), {static_cast<int64_t>(inv_freq.size())}), model->inv_freq_));
  return model;
}

void CausalLm::Carve(Carver& carver) {
  const int64_t slots = options_.token_slots;
  const DType dtype = parameters_->dtype();
  input_ids_ = carver.Take(DType::kInt32, {slots});
  position_ids_ = carver.Take(DType::kInt32, {slots});
  labels_ = carver.Take(DType::kInt32, {slots});
  inv_freq_ = carver.Take(DType::kFloat32, {config_->head_dim / 2});
  layer_activations_.clear();
  for (int64_t layer = 0; layer < (options_.backward ? config_->layers : 1); ++layer) {
    layer_activations_.push_back(LayerActivations::Carve(*config_, dtype, slots, carver));
  }
  scratch_ = LayerScratch::Carve(*config_, dtype, slots, carver);
  if (options_.backward) gradients_ = LayerGradients::Carve(*config_, dtype, slots, carver);
  final_residual_ = carver.Take(dtype, {slots, config_->hidden_size});
  final_rstd_ = carver.Take(DType::kFloat32, {slots});
  hidden_ = carver.Take(dtype, {slots, config_->hidden_size});
  loss_gradient_ = carver.Take(DType::kFloat32, {slots});
  log_prob_ = carver.Take(DType::kFloat32, {slots});
}

absl::Status CausalLm::Upload(const MicroBatch& batch) {
  RETURN_IF_ERROR(CheckBatch(batch, options_.token_slots, config_->vocab_size));
  const int64_t slots = batch.token_slots();
  tokens_ = parameters_->device().is_cpu() ? batch.used_slots() : slots;
  RETURN_IF_ERROR(CopyTensor(ConstTensorView(batch.input_ids.data(), {slots}), input_ids_.Rows(0, slots)));
  RETURN_IF_ERROR(CopyTensor(ConstTensorView(batch.position_ids.data(), {slots}), position_ids_.Rows(0, slots)));
  return CopyTensor(ConstTensorView(batch.labels.data(), {slots}), labels_.Rows(0, slots));
}

LayerContext CausalLm::Context(const MicroBatch& batch) const {
  return {.config = config_,
          .tokens = tokens_,
          .positions = position_ids_.Rows(0, tokens_),
          .inv_freq = inv_freq_,
          .cu_seqlens = batch.cu_seqlens,
          .stream = kernels::DefaultStream(parameters_->device())};
}

const LayerActivations& CausalLm::Activations(int64_t layer) const {
  return layer_activations_[options_.backward ? static_cast<size_t>(layer) : 0];
}

absl::Status CausalLm::ForwardLayers(const LayerContext& context) {
  const ModelWeights& weights = parameters_->weights();
  RETURN_IF_ERROR(kernels::Forward(kernels::EmbeddingForward{.ids = input_ids_.Rows(0, tokens_),
                                                             .weight = weights.embedding,
                                                             .y = Activations(0).residual_in.Rows(0, tokens_)},
                                   context.stream));
  for (int64_t layer = 0; layer < config_->layers; ++layer) {
    const LayerWeights& layer_weights = weights.layers[static_cast<size_t>(layer)];
    const LayerActivations& activations = Activations(layer);
    const ConstTensorView previous = Activations(std::max<int64_t>(layer - 1, 0)).residual_mid;
    RETURN_IF_ERROR(AttentionInputs(context, layer == 0, previous, layer_weights, activations, scratch_));
    RETURN_IF_ERROR(SelfAttention(context, config_->windows[static_cast<size_t>(layer)], activations));
    RETURN_IF_ERROR(AttentionOutputAndMlp(context, layer_weights, activations, scratch_));
  }
  return kernels::Forward(
      kernels::RmsNormForward{.x = scratch_.branch.Rows(0, tokens_),
                              .residual = Activations(config_->layers - 1).residual_mid.Rows(0, tokens_),
                              .weight = weights.final_norm,
                              .eps = config_->rms_norm_eps,
                              .residual_out = final_residual_.Rows(0, tokens_),
                              .y = hidden_.Rows(0, tokens_),
                              .rstd = final_rstd_.Rows(0, tokens_)},
      context.stream);
}

// REQUIRES: gradients_.normed holds the gradient of hidden_.
absl::Status CausalLm::BackwardLayers(const LayerContext& context) {
  const ModelWeights& weights = parameters_->weights();
  const ModelWeights& weight_gradients = parameters_->gradient_weights();
  const TensorView dresidual = gradients_.residual.Rows(0, tokens_);
  RETURN_IF_ERROR(kernels::Fill(dresidual, 0.0f, context.stream));
  RETURN_IF_ERROR(kernels::Backward(kernels::RmsNormBackward{.dy = gradients_.normed.Rows(0, tokens_),
                                                             .r = final_residual_.Rows(0, tokens_),
                                                             .weight = weights.final_norm,
                                                             .rstd = final_rstd_.Rows(0, tokens_),
                                                             .dr = dresidual,
                                                             .dweight = weight_gradients.final_norm},
                                    context.stream));
  for (int64_t layer = config_->layers - 1; layer >= 0; --layer) {
    const size_t index = static_cast<size_t>(layer);
    RETURN_IF_ERROR(LayerBackward(context, config_->windows[index], weights.layers[index],
                                  weight_gradients.layers[index], Activations(layer), scratch_, gradients_));
  }
  return kernels::Backward(
      kernels::EmbeddingBackward{
          .ids = input_ids_.Rows(0, tokens_), .dy = dresidual, .dweight = weight_gradients.embedding},
      context.stream);
}

absl::StatusOr<LossSum> CausalLm::CollectLoss(const MicroBatch& batch) {
  token_log_probs_.assign(batch.labels.size(), 0.0f);
  RETURN_IF_ERROR(CopyTensor(log_prob_.Rows(0, tokens_), TensorView(token_log_probs_.data(), {tokens_})));
  LossSum loss;
  for (size_t slot = 0; slot < batch.labels.size(); ++slot) {
    if (batch.labels[slot] == kIgnoreLabel) continue;
    loss.sum -= static_cast<double>(token_log_probs_[slot]);
    loss.weight += 1;
  }
  return loss;
}

absl::StatusOr<LossSum> CausalLm::Forward(const MicroBatch& batch) {
  RETURN_IF_ERROR(Upload(batch));
  const LayerContext context = Context(batch);
  if (tokens_ == 0) return CollectLoss(batch);
  RETURN_IF_ERROR(ForwardLayers(context));
  RETURN_IF_ERROR(kernels::Forward(kernels::CrossEntropyForward{.hidden = hidden_.Rows(0, tokens_),
                                                                .weight = parameters_->weights().head,
                                                                .labels = labels_.Rows(0, tokens_),
                                                                .log_prob = log_prob_.Rows(0, tokens_)},
                                   context.stream));
  return CollectLoss(batch);
}

absl::StatusOr<LossSum> CausalLm::ForwardBackward(const MicroBatch& batch, double loss_scale) {
  if (!options_.backward) return absl::FailedPreconditionError("the model was created without a backward");
  RETURN_IF_ERROR(Upload(batch));
  const LayerContext context = Context(batch);
  if (tokens_ == 0) return CollectLoss(batch);
  RETURN_IF_ERROR(ForwardLayers(context));
  RETURN_IF_ERROR(kernels::Fill(loss_gradient_.Rows(0, tokens_), static_cast<float>(loss_scale), context.stream));
  RETURN_IF_ERROR(
      kernels::ForwardBackward(kernels::CrossEntropyForwardBackward{.d_loss = loss_gradient_.Rows(0, tokens_),
                                                                    .hidden = hidden_.Rows(0, tokens_),
                                                                    .weight = parameters_->weights().head,
                                                                    .labels = labels_.Rows(0, tokens_),
                                                                    .log_prob = log_prob_.Rows(0, tokens_),
                                                                    .dhidden = gradients_.normed.Rows(0, tokens_),
                                                                    .dweight = parameters_->gradient_weights().head},
                               context.stream));
  RETURN_IF_ERROR(BackwardLayers(context));
  return CollectLoss(batch);
}

absl::StatusOr<std::vector<float>> CausalLm::Logits(const MicroBatch& batch) {
  RETURN_IF_ERROR(Upload(batch));
  const LayerContext context = Context(batch);
  if (tokens_ == 0) return std::vector<float>();
  RETURN_IF_ERROR(ForwardLayers(context));
  const int64_t rows = batch.used_slots();
  const kernels::Shape shape = {rows, config_->vocab_size};
  ASSIGN_OR_RETURN(const DeviceMemory logits, DeviceMemory::Allocate(shape.elements() * 4, parameters_->device()));
  const TensorView view = logits.View(0, DType::kFloat32, shape);
  RETURN_IF_ERROR(kernels::Run(
      kernels::MatMul{.a = hidden_.Rows(0, rows), .b = parameters_->weights().head, .transpose_b = true, .c = view},
      context.stream));
  std::vector<float> host(static_cast<size_t>(shape.elements()));
  RETURN_IF_ERROR(CopyTensor(view, TensorView(host.data(), shape)));
  return host;
}

}  // namespace sluice::engine
