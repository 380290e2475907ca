#include "engine/rollout/rollout_model.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/device/engine_stream.h"
#include "engine/model/rotary.h"
#include "kernels/embedding/embedding.h"
#include "kernels/matmul/matmul.h"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"

namespace sluice::engine {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::TensorView;

// On a GPU products are planned for each number of rows: few numbers, so few plans. The rows behind the pass's own
// compute with what the buffers hold and nobody reads them.
int64_t RowsFor(int64_t tokens, int64_t most, kernels::Device device) {
  if (device.is_cpu()) return tokens;
  constexpr int64_t kStep = 256;
  const int64_t rows = tokens <= kStep ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(tokens)))
                                       : (tokens + kStep - 1) / kStep * kStep;
  return std::min(rows, most);
}

}  // namespace

RolloutModel::RolloutModel(const Parameters* parameters, const RolloutModelOptions& options)
    : parameters_(parameters), options_(options) {}

int64_t RolloutModel::table_width() const {
  return (options_.max_model_len + options_.block_size - 1) / options_.block_size;
}

void RolloutModel::Carve(Carver& carver) {
  const ModelConfig& config = parameters_->config();
  const DType dtype = parameters_->dtype();
  const int64_t tokens = options_.max_batched_tokens, sequences = options_.max_sequences;
  const kernels::Shape pages = {options_.blocks, options_.block_size, config.kv_heads, config.head_dim};
  caches_.clear();
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    LayerCache& cache = caches_.emplace_back();
    cache.keys = carver.Take(dtype, pages);
    cache.values = carver.Take(dtype, pages);
  }
  inputs_ = carver.Take(DType::kInt32, {4 * tokens + sequences * (1 + table_width())});
  token_ids_ = inputs_.Rows(0, tokens);
  position_ids_ = inputs_.Rows(tokens, 2 * tokens);
  slots_ = inputs_.Rows(2 * tokens, 3 * tokens);
  sequences_ = inputs_.Rows(3 * tokens, 4 * tokens);
  logit_rows_ = inputs_.Rows(4 * tokens, 4 * tokens + sequences);
  block_table_ = inputs_.Rows(4 * tokens + sequences, inputs_.dim(0));
  inv_freq_ = carver.Take(DType::kFloat32, {config.head_dim / 2});
  cos_sin_ = carver.Take(DType::kFloat32, {tokens, config.head_dim});
  const LayerActivations shared = LayerActivations::CarveShared(config, dtype, tokens, Recompute::kNone, carver);
  activations_ = LayerActivations::Carve(config, dtype, tokens, Recompute::kNone, shared, carver);
  branch_ = carver.Take(dtype, {tokens, config.hidden_size});
  final_residual_ = carver.Take(dtype, {tokens, config.hidden_size});
  final_rstd_ = carver.Take(DType::kFloat32, {tokens});
  hidden_ = carver.Take(dtype, {tokens, config.hidden_size});
  head_input_ = carver.Take(dtype, {sequences, config.hidden_size});
  logits_ = carver.Take(DType::kFloat32, {sequences, config.vocab_size});
}

int64_t RolloutModel::BytesFor(const Parameters& parameters, const RolloutModelOptions& options) {
  RolloutModel model(&parameters, options);
  Carver size;
  model.Carve(size);
  return size.bytes();
}

absl::Status RolloutModel::Allocate() {
  if (allocated()) return absl::OkStatus();
  auto memory = DeviceMemory::Allocate(BytesFor(*parameters_, options_), parameters_->device());
  RETURN_IF_ERROR(Annotate(memory.status(), absl::StrCat("the rollout's key/value cache of ",
                                                         options_.blocks * options_.block_size, " tokens")));
  RETURN_IF_ERROR(ReserveWorkspace(parameters_->device(), kernels::kMatMulWorkspace));
  memory_ = *std::move(memory);
  Carver carver(memory_);
  Carve(carver);
  const ModelConfig& config = parameters_->config();
  const std::vector<float> inv_freq = RotaryInverseFrequencies(config.rope, config.head_dim);
  return CopyTensor(ConstTensorView(inv_freq.data(), {static_cast<int64_t>(inv_freq.size())}), inv_freq_);
}

void RolloutModel::Free() { memory_ = DeviceMemory(); }

// Between two phases the trainer has the memory, and may have moved the weights. Plans of products stay.
void RolloutModel::ForgetWhatMoved() {
  const std::pair<const void*, const void*> at = {memory_.View(0, DType::kInt32, {1}).data, parameters_->values().data};
  if (at == recorded_at_) return;
  for (auto& [rows, recorded] : recorded_) recorded.Forget();
  recorded_at_ = at;
}

RolloutModel::Pass RolloutModel::Describe(std::span<const PassSequence> sequences) const {
  Pass pass;
  pass.cu_seqlens = {0};
  const auto width = static_cast<size_t>(table_width());
  for (const PassSequence& sequence : sequences) {
    int64_t position = sequence.computed;
    for (const int32_t id : sequence.token_ids) {
      const int32_t block = sequence.blocks[static_cast<size_t>(position / options_.block_size)];
      pass.ids.push_back(id);
      pass.positions.push_back(static_cast<int32_t>(position));
      pass.slots.push_back(static_cast<int32_t>(block * options_.block_size + position % options_.block_size));
      pass.sequences.push_back(static_cast<int32_t>(pass.context_lengths.size()));
      ++position;
    }
    if (sequence.wants_logits) pass.logit_rows.push_back(static_cast<int32_t>(pass.ids.size()) - 1);
    pass.cu_seqlens.push_back(static_cast<int32_t>(pass.ids.size()));
    pass.context_lengths.push_back(static_cast<int32_t>(position));
    pass.table.insert(pass.table.end(), sequence.blocks.begin(), sequence.blocks.end());
    pass.table.resize(pass.context_lengths.size() * width, 0);
  }
  return pass;
}

// All in one copy, laid out as in Carve. What pads the rows belongs to no sequence and is written to no page.
absl::Status RolloutModel::Upload(const Pass& pass) {
  const auto tokens = static_cast<size_t>(options_.max_batched_tokens);
  std::vector<int32_t> inputs;
  inputs.reserve(4 * tokens + static_cast<size_t>(options_.max_sequences) + pass.table.size());
  const auto append = [&](const std::vector<int32_t>& values, size_t room, int32_t padding) {
    inputs.insert(inputs.end(), values.begin(), values.end());
    inputs.insert(inputs.end(), room - values.size(), padding);
  };
  append(pass.ids, tokens, 0);
  append(pass.positions, tokens, 0);
  append(pass.slots, tokens, -1);
  append(pass.sequences, tokens, -1);
  append(pass.logit_rows, static_cast<size_t>(options_.max_sequences), 0);
  append(pass.table, pass.table.size(), 0);
  const auto count = static_cast<int64_t>(inputs.size());
  return CopyTensor(ConstTensorView(inputs.data(), {count}), inputs_.Rows(0, count));
}

absl::StatusOr<ConstTensorView> RolloutModel::Forward(std::span<const PassSequence> sequences) {
  if (!allocated()) return absl::FailedPreconditionError("the rollout's cache is not allocated");
  const kernels::Device device = parameters_->device();
  const Pass pass = Describe(sequences);
  const auto wanted = static_cast<int64_t>(pass.logit_rows.size());
  const PassRows rows = {RowsFor(static_cast<int64_t>(pass.ids.size()), options_.max_batched_tokens, device),
                         wanted == 0 ? 0 : RowsFor(wanted, options_.max_sequences, device)};
  RETURN_IF_ERROR(Upload(pass));
  ForgetWhatMoved();
  RETURN_IF_ERROR(recorded_[rows].Run(EngineStream(device), [&] { return Compute(pass, rows); }));
  return logits_.Rows(0, wanted);
}

// On CUDA what is launched depends on `rows` alone.
absl::Status RolloutModel::Compute(const Pass& pass, const PassRows& rows) {
  const LayerContext context{.config = &parameters_->config(),
                             .tokens = rows.tokens,
                             .cos_sin = cos_sin_.Rows(0, rows.tokens),
                             .stream = EngineStream(parameters_->device())};
  RETURN_IF_ERROR(ForwardLayers(pass, context));
  return Head(rows.logits, context);
}

absl::Status RolloutModel::ForwardLayers(const Pass& pass, const LayerContext& context) {
  const ModelConfig& config = parameters_->config();
  const ModelWeights& weights = parameters_->weights();
  const int64_t rows = context.tokens;
  // On CUDA the table has room for every sequence there may be, so that its shape says nothing of the pass.
  const int64_t sequences =
      context.stream.device.is_cpu() ? static_cast<int64_t>(pass.context_lengths.size()) : options_.max_sequences;
  const TensorView table(block_table_.data, DType::kInt32, {sequences, table_width()}, block_table_.device);
  RETURN_IF_ERROR(kernels::Run(
      kernels::RotaryTable{
          .positions = position_ids_.Rows(0, rows), .inv_freq = inv_freq_, .cos_sin = cos_sin_.Rows(0, rows)},
      context.stream));
  RETURN_IF_ERROR(kernels::Forward(
      kernels::EmbeddingForward{
          .ids = token_ids_.Rows(0, rows), .weight = weights.embedding, .y = activations_.residual_in.Rows(0, rows)},
      context.stream));
  const TensorView out = activations_.attention.Rows(0, rows).Reshaped({rows, config.heads, config.head_dim});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    const ConstTensorView previous = layer == 0 ? ConstTensorView::Empty() : activations_.residual_mid;
    RETURN_IF_ERROR(AttentionInputs(context, previous, weights.layers[index], activations_, branch_));
    const AttentionHeads heads = HeadsOf(context, activations_);
    const LayerCache& cache = caches_[index];
    RETURN_IF_ERROR(kernels::Run(
        kernels::PagedAppend{
            .k = heads.k, .v = heads.v, .slots = slots_.Rows(0, rows), .k_cache = cache.keys, .v_cache = cache.values},
        context.stream));
    RETURN_IF_ERROR(kernels::Forward(kernels::PagedAttention{.q = heads.q,
                                                             .k_cache = cache.keys,
                                                             .v_cache = cache.values,
                                                             .block_table = table,
                                                             .cu_seqlens = pass.cu_seqlens,
                                                             .context_lengths = pass.context_lengths,
                                                             .sequences = sequences_.Rows(0, rows),
                                                             .positions = position_ids_.Rows(0, rows),
                                                             .scale = AttentionScale(config),
                                                             .window = config.windows[index],
                                                             .out = out},
                                     context.stream));
    RETURN_IF_ERROR(AttentionOutputAndGates(context, weights.layers[index], activations_, branch_));
    RETURN_IF_ERROR(DownProjection(context, weights.layers[index], activations_, branch_));
  }
  return absl::OkStatus();
}

absl::Status RolloutModel::Head(int64_t logit_rows, const LayerContext& context) {
  if (logit_rows == 0) return absl::OkStatus();
  const ModelConfig& config = parameters_->config();
  const ModelWeights& weights = parameters_->weights();
  const int64_t rows = context.tokens;
  RETURN_IF_ERROR(kernels::Forward(kernels::RmsNormForward{.x = branch_.Rows(0, rows),
                                                           .residual = activations_.residual_mid.Rows(0, rows),
                                                           .weight = weights.final_norm,
                                                           .eps = config.rms_norm_eps,
                                                           .residual_out = final_residual_.Rows(0, rows),
                                                           .y = hidden_.Rows(0, rows),
                                                           .rstd = final_rstd_.Rows(0, rows)},
                                   context.stream));
  // The wanted rows, gathered as an embedding gathers its rows.
  RETURN_IF_ERROR(kernels::Forward(kernels::EmbeddingForward{.ids = logit_rows_.Rows(0, logit_rows),
                                                             .weight = hidden_.Rows(0, rows),
                                                             .y = head_input_.Rows(0, logit_rows)},
                                   context.stream));
  return kernels::Run(kernels::MatMul{.a = head_input_.Rows(0, logit_rows),
                                      .b = weights.head,
                                      .transpose_b = true,
                                      .c = logits_.Rows(0, logit_rows)},
                      context.stream);
}

}  // namespace sluice::engine
