#include "engine/model/causal_lm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/device/engine_stream.h"
#include "engine/model/rotary.h"
#include "kernels/attention/attention.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"
#include "kernels/flat/flat.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"

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

// The sequences that attention's plans are made for: few sizes, so that there are few plans and graphs, and little more
// than needed, because empty places cost a little time. Its deterministic backward takes memory for room * longest^2,
// so there both are tighter.
AttentionRoom RoomFor(const MicroBatch& batch, const CausalLmOptions& options) {
  AttentionRoom room = {.sequences = options.deterministic ? 1 : 16, .longest = options.token_slots};
  while (room.sequences < batch.sequences()) room.sequences *= options.deterministic ? 2 : 4;
  room.sequences = std::min(room.sequences, options.token_slots);
  if (!options.deterministic) return room;
  int32_t longest = 1;
  for (size_t s = 1; s < batch.cu_seqlens.size(); ++s) {
    longest = std::max(longest, batch.cu_seqlens[s] - batch.cu_seqlens[s - 1]);
  }
  room.longest = 128;
  while (room.longest < longest) room.longest *= 2;
  room.longest = std::min(room.longest, options.token_slots);
  return room;
}

// On the CPU a piece of logits should stay in the cache, on a GPU it should keep all multiprocessors busy.
int64_t LogitsBytes(const CausalLmOptions& options, kernels::Device device) {
  return device.is_cpu() ? kernels::kDefaultLogitsBytes : options.logits_bytes;
}

}  // namespace

CausalLm::CausalLm(const Parameters* parameters, const ModelConfig* config, const CausalLmOptions& options)
    : parameters_(parameters), config_(config), options_(options) {}

absl::StatusOr<std::unique_ptr<CausalLm>> CausalLm::Create(const Parameters* parameters,
                                                           const CausalLmOptions& options) {
  if (options.token_slots < 1) return absl::InvalidArgumentError("token_slots must be at least 1");
  if (options.backward && !parameters->has_gradients()) {
    return absl::FailedPreconditionError("a model with a backward needs parameters with gradients");
  }
  std::unique_ptr<CausalLm> model(new CausalLm(parameters, &parameters->config(), options));
  const ModelConfig& config = *model->config_;
  const kernels::Device device = parameters->device();
  Carver size;
  model->Carve(config, parameters->dtype(), size);
  ASSIGN_OR_RETURN(model->memory_, DeviceMemory::Allocate(size.bytes(), device));
  Carver carver(model->memory_);
  model->Carve(config, parameters->dtype(), carver);
  ASSIGN_OR_RETURN(model->upload_, BatchUpload::Create(options.token_slots, EngineStream(device)));
  if (options.backward) {
    model->buckets_ = PlanGradientBuckets(parameters->layout(), config, options.bucket_bytes, model->embedding_sum_);
  }
  model->recordable_ = device.is_cuda() && kernels::IsCapturableAttention(parameters->dtype(), config.head_dim);
  // A first guess at the workspace, so that a model that does not fit says so now.
  RETURN_IF_ERROR(model->Reserve(RoomFor(MicroBatch(), options)));

  const std::vector<float> inv_freq = RotaryInverseFrequencies(config.rope, config.head_dim);
  RETURN_IF_ERROR(
      CopyTensor(ConstTensorView(inv_freq.data(), {static_cast<int64_t>(inv_freq.size())}), model->inv_freq_));
  return model;
}

int64_t CausalLm::BytesFor(const ModelConfig& config, DType dtype, const CausalLmOptions& options) {
  CausalLm sizes(/*parameters=*/nullptr, &config, options);
  Carver size;
  sizes.Carve(config, dtype, size);
  return size.bytes() + BatchUpload::DeviceBytes(options.token_slots);
}

int64_t CausalLm::HeadWorkspace(const ModelConfig& config, DType dtype, const CausalLmOptions& options) {
  if (config.value_head) return kernels::kMatMulWorkspace;
  return kernels::CrossEntropyWorkspace(options.token_slots, config.hidden_size, config.vocab_size, dtype,
                                        options.logits_bytes) +
         kernels::kMatMulWorkspace;
}

void CausalLm::Carve(const ModelConfig& config, DType dtype, Carver& carver) {
  const int64_t slots = options_.token_slots;
  inv_freq_ = carver.Take(DType::kFloat32, {config.head_dim / 2});
  cos_sin_ = carver.Take(DType::kFloat32, {slots, config.head_dim});
  bounds_ = carver.Take(DType::kInt32, {4 * (slots + 1)});
  // Without a backward one layer's buffers serve all of them.
  const Recompute recompute = options_.backward ? options_.recompute : Recompute::kNone;
  shared_ = LayerActivations::CarveShared(config, dtype, slots, recompute, carver);
  layer_activations_.clear();
  for (int64_t layer = 0; layer < (options_.backward ? config.layers : 1); ++layer) {
    layer_activations_.push_back(LayerActivations::Carve(config, dtype, slots, recompute, shared_, carver));
  }
  branch_ = carver.Take(dtype, {slots, config.hidden_size});
  if (options_.backward) gradients_ = LayerGradients::Carve(config, dtype, slots, carver);
  embedding_sum_ = ChooseEmbeddingSum(config, options_.ranks, slots, kernels::SizeOf(dtype));
  if (options_.backward && embedding_sum_ == EmbeddingSum::kBeforeItsRows) {
    gathered_ids_ = carver.Take(DType::kInt32, {options_.ranks * slots});
    gathered_rows_ = carver.Take(dtype, {options_.ranks * slots, config.hidden_size});
  }
  final_residual_ = carver.Take(dtype, {slots, config.hidden_size});
  final_rstd_ = carver.Take(DType::kFloat32, {slots});
  hidden_ = carver.Take(dtype, {slots, config.hidden_size});
  loss_gradient_ = carver.Take(DType::kFloat32, {slots});
  log_prob_ = carver.Take(DType::kFloat32, {slots});
  loss_sum_ = carver.Take(DType::kFloat64, {1});
  if (options_.distillation) {
    divergence_ = carver.Take(DType::kFloat32, {slots});
    distillation_sums_ = carver.Take(DType::kFloat64, {2});
  }
  if (!options_.token_losses) return;
  logsumexp_ = carver.Take(DType::kFloat32, {slots});
  entropy_ = carver.Take(DType::kFloat32, {slots});
  entropy_gradient_ = carver.Take(DType::kFloat32, {slots});
}

// The workspace of every kernel that will run, and attention's plans for `room`: before anything is recorded.
absl::Status CausalLm::Reserve(const AttentionRoom& room) {
  room_ = room;
  const kernels::Device device = parameters_->device();
  if (device.is_cuda() && !reserved_.contains(room)) {
    int64_t workspace = HeadWorkspace(*config_, parameters_->dtype(), options_);
    for (const int64_t window : recordable_ ? config_->windows : std::vector<int64_t>()) {
      ASSIGN_OR_RETURN(const int64_t attention, kernels::PrepareAttention({.tokens = options_.token_slots,
                                                                           .sequences = room.sequences,
                                                                           .longest = room.longest,
                                                                           .q_heads = config_->heads,
                                                                           .kv_heads = config_->kv_heads,
                                                                           .head_dim = config_->head_dim,
                                                                           .scale = AttentionScale(*config_),
                                                                           .window = std::max<int64_t>(window, 0),
                                                                           .deterministic = options_.deterministic},
                                                                          options_.backward, EngineStream(device)));
      workspace = std::max(workspace, attention);
    }
    RETURN_IF_ERROR(Annotate(ReserveWorkspace(device, workspace),
                             absl::StrCat("workspace for ", room.sequences, " sequences of at most ", room.longest,
                                          options_.deterministic ? " tokens (deterministic attention)" : " tokens")));
    reserved_.insert(room);
  }
  stream_ = EngineStream(device);
  return absl::OkStatus();
}

absl::Status CausalLm::Upload(const MicroBatch& batch) {
  RETURN_IF_ERROR(CheckBatch(batch, options_.token_slots, config_->vocab_size));
  slots_ = batch.token_slots();
  tokens_ = parameters_->device().is_cpu() ? batch.used_slots() : slots_;
  if (recordable_ && slots_ != options_.token_slots) {
    return absl::InvalidArgumentError(absl::StrCat("micro-batch of ", slots_, " slots: on CUDA it must fill all ",
                                                   options_.token_slots, " that the model was made for"));
  }
  RETURN_IF_ERROR(Reserve(RoomFor(batch, options_)));
  return upload_->Issue(batch, std::max(room_.sequences, batch.sequences()));
}

TensorView CausalLm::Bounds() const {
  if (!recordable_) return TensorView::Empty();
  return TensorView(bounds_.data, DType::kInt32, {4, room_.sequences + 1}, bounds_.device);
}

LayerContext CausalLm::Context(const MicroBatch& batch, GradientMode mode) const {
  return {.config = config_,
          .tokens = tokens_,
          .cos_sin = cos_sin_.Rows(0, tokens_),
          .cu_seqlens = batch.cu_seqlens,
          .bounds = Bounds(),
          .longest = room_.longest,
          .deterministic = options_.deterministic,
          .accumulate = mode == GradientMode::kAccumulate,
          .recompute = options_.backward ? options_.recompute : Recompute::kNone,
          .stream = stream_};
}

absl::Status CausalLm::RunRecorded(Segment segment, absl::FunctionRef<absl::Status()> body) {
  if (!recordable_ || !options_.cuda_graphs) return body();
  return recorded_[{room_, segment}].Run(stream_, body);
}

absl::Status CausalLm::RunForward(const LayerContext& context) {
  return RunRecorded(Segment::kForward, [&] { return ForwardLayers(context); });
}

absl::Status CausalLm::RunBackward(const LayerContext& context, GradientUse use) {
  const bool overwrites = use.mode == GradientMode::kOverwrite;
  if (use.sum_over == nullptr) {
    return RunRecorded(overwrites ? Segment::kBackwardOverwrites : Segment::kBackwardAccumulates,
                       [&] { return BackwardLayers(context, nullptr); });
  }
  RETURN_IF_ERROR(RunRecorded(overwrites ? Segment::kLastBackwardOverwrites : Segment::kLastBackwardAccumulates,
                              [&] { return BackwardLayers(context, use.sum_over); }));
  return use.sum_over->WatchDevice();
}

absl::Status CausalLm::BackwardOfNothing(GradientUse use) {
  if (use.mode == GradientMode::kOverwrite) RETURN_IF_ERROR(kernels::Fill(parameters_->gradients(), 0.0f, stream_));
  return use.sum_over == nullptr ? absl::OkStatus() : SumGradients(*use.sum_over);
}

absl::Status CausalLm::BeginSums(int64_t after_layer, Communicator* sum_over) {
  if (sum_over == nullptr) return absl::OkStatus();
  for (const GradientBucket& bucket : buckets_) {
    if (bucket.after_layer != after_layer) continue;
    RETURN_IF_ERROR(sum_over->BeginAllReduceSum(parameters_->gradients().Rows(bucket.begin, bucket.end)));
  }
  return absl::OkStatus();
}

absl::Status CausalLm::SumGradients(Communicator& communicator) {
  if (!options_.backward) return absl::FailedPreconditionError("the model was created without a backward");
  for (int64_t layer = config_->layers; layer >= 0; --layer) RETURN_IF_ERROR(BeginSums(layer, &communicator));
  RETURN_IF_ERROR(EmbeddingBackward(/*rows=*/0, &communicator));
  return communicator.WatchDevice();
}

absl::Status CausalLm::EmbeddingBackward(int64_t rows, Communicator* sum_over) {
  const TensorView gradient = parameters_->gradient_weights().embedding;
  const TensorView dresidual = gradients_.residual;
  if (sum_over == nullptr || embedding_sum_ == EmbeddingSum::kAtTheEnd) {
    if (rows > 0) {
      RETURN_IF_ERROR(kernels::Backward(
          kernels::EmbeddingBackward{
              .ids = upload_->input_ids(rows), .dy = dresidual.Rows(0, rows), .dweight = gradient},
          stream_));
    }
    if (sum_over == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(BeginSums(-1, sum_over));
    return sum_over->Join();
  }
  // Rows of all slots, because all ranks send equally many; those without a token add zero to whatever id is there.
  const int64_t slots = options_.token_slots;
  RETURN_IF_ERROR(kernels::Fill(dresidual.Rows(rows, slots), 0.0f, stream_));
  RETURN_IF_ERROR(sum_over->BeginAllGather(upload_->input_ids(slots), gathered_ids_));
  RETURN_IF_ERROR(sum_over->BeginAllGather(dresidual, gathered_rows_));
  RETURN_IF_ERROR(BeginSums(-1, sum_over));
  RETURN_IF_ERROR(sum_over->Join());
  return kernels::Backward(kernels::EmbeddingBackward{.ids = gathered_ids_, .dy = gathered_rows_, .dweight = gradient},
                           stream_);
}

absl::Status CausalLm::ForwardLayers(const LayerContext& context) {
  const ModelWeights& weights = parameters_->weights();
  if (!context.bounds.empty()) {
    RETURN_IF_ERROR(kernels::Run(kernels::SequenceBounds{.cu_seqlens = upload_->cu_seqlens(room_.sequences + 1),
                                                         .q_heads = config_->heads,
                                                         .kv_heads = config_->kv_heads,
                                                         .head_dim = config_->head_dim,
                                                         .bounds = Bounds()},
                                 context.stream));
  }
  RETURN_IF_ERROR(kernels::Run(
      kernels::RotaryTable{
          .positions = upload_->position_ids(tokens_), .inv_freq = inv_freq_, .cos_sin = cos_sin_.Rows(0, tokens_)},
      context.stream));
  RETURN_IF_ERROR(kernels::Forward(kernels::EmbeddingForward{.ids = upload_->input_ids(tokens_),
                                                             .weight = weights.embedding,
                                                             .y = layer_activations_[0].residual_in.Rows(0, tokens_)},
                                   context.stream));
  ConstTensorView previous;
  for (int64_t layer = 0; layer < config_->layers; ++layer) {
    const LayerWeights& layer_weights = weights.layers[static_cast<size_t>(layer)];
    const LayerActivations& activations = layer_activations_[options_.backward ? static_cast<size_t>(layer) : 0];
    RETURN_IF_ERROR(AttentionInputs(context, previous, layer_weights, activations, branch_));
    RETURN_IF_ERROR(SelfAttention(context, config_->windows[static_cast<size_t>(layer)], activations));
    RETURN_IF_ERROR(AttentionOutputAndGates(context, layer_weights, activations, branch_));
    RETURN_IF_ERROR(DownProjection(context, layer_weights, activations, branch_));
    previous = activations.residual_mid;
  }
  return kernels::Forward(kernels::RmsNormForward{.x = branch_.Rows(0, tokens_),
                                                  .residual = previous.Rows(0, tokens_),
                                                  .weight = weights.final_norm,
                                                  .eps = config_->rms_norm_eps,
                                                  .residual_out = final_residual_.Rows(0, tokens_),
                                                  .y = hidden_.Rows(0, tokens_),
                                                  .rstd = final_rstd_.Rows(0, tokens_)},
                          context.stream);
}

// REQUIRES: hidden_ holds the gradient of itself.
absl::Status CausalLm::BackwardLayers(const LayerContext& context, Communicator* sum_over) {
  RETURN_IF_ERROR(BeginSums(config_->layers, sum_over));
  const ModelWeights& weights = parameters_->weights();
  const ModelWeights& weight_gradients = parameters_->gradient_weights();
  const TensorView dresidual = gradients_.residual.Rows(0, tokens_);
  RETURN_IF_ERROR(kernels::Fill(dresidual, 0.0f, context.stream));
  RETURN_IF_ERROR(kernels::Backward(kernels::RmsNormBackward{.dy = hidden_.Rows(0, tokens_),
                                                             .r = final_residual_.Rows(0, tokens_),
                                                             .weight = weights.final_norm,
                                                             .rstd = final_rstd_.Rows(0, tokens_),
                                                             .dr = dresidual,
                                                             .dweight = weight_gradients.final_norm},
                                    context.stream));
  for (int64_t layer = config_->layers - 1; layer >= 0; --layer) {
    const size_t index = static_cast<size_t>(layer);
    RETURN_IF_ERROR(LayerBackward(context, config_->windows[index], weights.layers[index],
                                  weight_gradients.layers[index], layer_activations_[index], branch_, gradients_));
    RETURN_IF_ERROR(BeginSums(layer, sum_over));
  }
  return EmbeddingBackward(tokens_, sum_over);
}

// Zeroes the gradients that the backward only ever adds to: all but the matrices, which products overwrite, as does a
// value head.
absl::Status CausalLm::ClearOverwritten() {
  const ParameterLayout& layout = parameters_->layout();
  const TensorView gradients = parameters_->gradients();
  RETURN_IF_ERROR(kernels::Fill(gradients.Rows(layout.decayed_size(), layout.size()), 0.0f, stream_));
  // A tied embedding's gradient begins with the head's product; one of its own only receives rows.
  if (config_->tie_word_embeddings && !config_->value_head) return absl::OkStatus();
  const TensorView embedding = parameters_->gradient_weights().embedding;
  return kernels::Fill(embedding, 0.0f, stream_);
}

kernels::CrossEntropyInputs CausalLm::HeadInputs() const {
  return {.hidden = hidden_.Rows(0, tokens_),
          .weight = parameters_->weights().head,
          .labels = upload_->labels(tokens_),
          .scored = upload_->scored(upload_->scored_slots()),
          .logits_bytes = LogitsBytes(options_, parameters_->device())};
}

absl::Status CausalLm::AddLoss() { return kernels::AddSum(log_prob_.Rows(0, tokens_), -1.0, loss_sum_, stream_); }

absl::Status CausalLm::ResetLoss() {
  if (options_.distillation) RETURN_IF_ERROR(kernels::Fill(distillation_sums_, 0.0f, stream_));
  return kernels::Fill(loss_sum_, 0.0f, stream_);
}

absl::StatusOr<double> CausalLm::ReadLoss() const {
  double sum = 0;
  RETURN_IF_ERROR(CopyTensor(loss_sum_, TensorView(&sum, {1})));
  return sum;
}

absl::StatusOr<std::vector<float>> CausalLm::TokenLogProbs() const {
  std::vector<float> log_probs(static_cast<size_t>(slots_), 0.0f);
  RETURN_IF_ERROR(CopyTensor(log_prob_.Rows(0, tokens_), TensorView(log_probs.data(), {tokens_})));
  return log_probs;
}

absl::Status CausalLm::RequireHead(bool value_head) const {
  if (config_->value_head == value_head) return absl::OkStatus();
  return absl::FailedPreconditionError(value_head ? "the model has no value head"
                                                  : "the model has a value head in place of the language-model head");
}

absl::Status CausalLm::Forward(const MicroBatch& batch) {
  RETURN_IF_ERROR(RequireHead(/*value_head=*/false));
  RETURN_IF_ERROR(Upload(batch));
  if (tokens_ == 0) return absl::OkStatus();
  const LayerContext context = Context(batch, GradientMode::kAccumulate);
  RETURN_IF_ERROR(RunForward(context));
  RETURN_IF_ERROR(kernels::Forward(
      kernels::CrossEntropyForward{.in = HeadInputs(), .log_prob = log_prob_.Rows(0, tokens_)}, stream_));
  return AddLoss();
}

absl::Status CausalLm::ForwardBackward(const MicroBatch& batch, double loss_scale, GradientUse use) {
  if (!options_.backward) return absl::FailedPreconditionError("the model was created without a backward");
  RETURN_IF_ERROR(RequireHead(/*value_head=*/false));
  RETURN_IF_ERROR(Upload(batch));
  if (tokens_ == 0) return BackwardOfNothing(use);
  const bool overwrites = use.mode == GradientMode::kOverwrite;
  const LayerContext context = Context(batch, use.mode);
  if (overwrites) RETURN_IF_ERROR(ClearOverwritten());
  RETURN_IF_ERROR(RunForward(context));
  // By itself: its work depends on how many slots are scored.
  RETURN_IF_ERROR(kernels::Fill(loss_gradient_.Rows(0, tokens_), static_cast<float>(loss_scale), stream_));
  const TensorView hidden = hidden_.Rows(0, tokens_);
  RETURN_IF_ERROR(
      kernels::ForwardBackward(kernels::CrossEntropyForwardBackward{.in = HeadInputs(),
                                                                    .d_loss = loss_gradient_.Rows(0, tokens_),
                                                                    .log_prob = log_prob_.Rows(0, tokens_),
                                                                    .dhidden = hidden,
                                                                    .dweight = parameters_->gradient_weights().head,
                                                                    .accumulate_dweight = !overwrites},
                               stream_));
  RETURN_IF_ERROR(AddLoss());
  return RunBackward(context, use);
}

absl::StatusOr<std::vector<float>> CausalLm::Logits(const MicroBatch& batch) {
  RETURN_IF_ERROR(RequireHead(/*value_head=*/false));
  RETURN_IF_ERROR(Upload(batch));
  const int64_t used = batch.used_slots();
  std::vector<float> logits(static_cast<size_t>(used * config_->vocab_size));
  if (used == 0) return logits;
  const LayerContext context = Context(batch, GradientMode::kAccumulate);
  RETURN_IF_ERROR(RunForward(context));
  // Some rows at a time: the logits of all would not fit beside a large model.
  constexpr int64_t kRows = 256;
  const int64_t rows_at_once = std::min(kRows, used);
  ASSIGN_OR_RETURN(const DeviceMemory memory,
                   DeviceMemory::Allocate(rows_at_once * config_->vocab_size * static_cast<int64_t>(sizeof(float)),
                                          parameters_->device()));
  for (int64_t begin = 0; begin < used; begin += rows_at_once) {
    const int64_t end = std::min(begin + rows_at_once, used);
    const TensorView piece = memory.View(0, DType::kFloat32, {end - begin, config_->vocab_size});
    RETURN_IF_ERROR(kernels::Run(
        kernels::MatMul{
            .a = hidden_.Rows(begin, end), .b = parameters_->weights().head, .transpose_b = true, .c = piece},
        stream_));
    RETURN_IF_ERROR(
        CopyTensor(piece, TensorView(logits.data() + begin * config_->vocab_size, {end - begin, config_->vocab_size})));
  }
  return logits;
}

}  // namespace sluice::engine
