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

absl::Status CopyInts(const std::vector<int32_t>& from, TensorView to) {
  if (from.empty()) return absl::OkStatus();
  const auto count = static_cast<int64_t>(from.size());
  return CopyTensor(ConstTensorView(from.data(), {count}), to.Rows(0, count));
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
  token_ids_ = carver.Take(DType::kInt32, {tokens});
  position_ids_ = carver.Take(DType::kInt32, {tokens});
  slots_ = carver.Take(DType::kInt32, {tokens});
  block_table_ = carver.Take(DType::kInt32, {sequences * table_width()});
  logit_rows_ = carver.Take(DType::kInt32, {sequences});
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

void RolloutModel::Free() {
  memory_ = DeviceMemory();
  host_logits_ = {};
}

RolloutModel::Pass RolloutModel::Describe(std::span<const PassSequence> sequences) const {
  Pass pass;
  pass.cu_seqlens = {0};
  for (const PassSequence& sequence : sequences) {
    pass.table_width = std::max(pass.table_width, static_cast<int64_t>(sequence.blocks.size()));
  }
  for (const PassSequence& sequence : sequences) {
    int64_t position = sequence.computed;
    for (const int32_t id : sequence.token_ids) {
      const int32_t block = sequence.blocks[static_cast<size_t>(position / options_.block_size)];
      pass.ids.push_back(id);
      pass.positions.push_back(static_cast<int32_t>(position));
      pass.slots.push_back(static_cast<int32_t>(block * options_.block_size + position % options_.block_size));
      ++position;
    }
    if (sequence.wants_logits) pass.logit_rows.push_back(static_cast<int32_t>(pass.ids.size()) - 1);
    pass.cu_seqlens.push_back(static_cast<int32_t>(pass.ids.size()));
    pass.context_lengths.push_back(static_cast<int32_t>(position));
    pass.table.insert(pass.table.end(), sequence.blocks.begin(), sequence.blocks.end());
    pass.table.resize(pass.context_lengths.size() * static_cast<size_t>(pass.table_width), 0);
  }
  return pass;
}

absl::Status RolloutModel::Upload(const Pass& pass, int64_t rows) {
  std::vector<int32_t> ids = pass.ids, positions = pass.positions;
  ids.resize(static_cast<size_t>(rows), 0);
  positions.resize(static_cast<size_t>(rows), 0);
  RETURN_IF_ERROR(CopyInts(ids, token_ids_));
  RETURN_IF_ERROR(CopyInts(positions, position_ids_));
  RETURN_IF_ERROR(CopyInts(pass.slots, slots_));
  RETURN_IF_ERROR(CopyInts(pass.table, block_table_));
  return CopyInts(pass.logit_rows, logit_rows_);
}

absl::StatusOr<ConstTensorView> RolloutModel::Forward(std::span<const PassSequence> sequences) {
  if (!allocated()) return absl::FailedPreconditionError("the rollout's cache is not allocated");
  const kernels::Device device = parameters_->device();
  const Pass pass = Describe(sequences);
  const int64_t rows = RowsFor(static_cast<int64_t>(pass.ids.size()), options_.max_batched_tokens, device);
  RETURN_IF_ERROR(Upload(pass, rows));
  const LayerContext context{.config = &parameters_->config(),
                             .tokens = rows,
                             .cos_sin = cos_sin_.Rows(0, rows),
                             .stream = EngineStream(device)};
  RETURN_IF_ERROR(ForwardLayers(pass, context));
  return Head(pass, context);
}

absl::Status RolloutModel::ForwardLayers(const Pass& pass, const LayerContext& context) {
  const ModelConfig& config = parameters_->config();
  const ModelWeights& weights = parameters_->weights();
  const int64_t rows = context.tokens, used = pass.cu_seqlens.back();
  const auto sequences = static_cast<int64_t>(pass.context_lengths.size());
  const TensorView table(block_table_.data, DType::kInt32, {sequences, pass.table_width}, block_table_.device);
  RETURN_IF_ERROR(kernels::Run(
      kernels::RotaryTable{
          .positions = position_ids_.Rows(0, rows), .inv_freq = inv_freq_, .cos_sin = cos_sin_.Rows(0, rows)},
      context.stream));
  RETURN_IF_ERROR(kernels::Forward(
      kernels::EmbeddingForward{
          .ids = token_ids_.Rows(0, rows), .weight = weights.embedding, .y = activations_.residual_in.Rows(0, rows)},
      context.stream));
  const TensorView out = activations_.attention.Rows(0, used).Reshaped({used, config.heads, config.head_dim});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    const ConstTensorView previous = layer == 0 ? ConstTensorView::Empty() : activations_.residual_mid;
    RETURN_IF_ERROR(AttentionInputs(context, previous, weights.layers[index], activations_, branch_));
    const AttentionHeads heads = HeadsOf(context, activations_);
    const LayerCache& cache = caches_[index];
    RETURN_IF_ERROR(kernels::Run(kernels::PagedAppend{.k = heads.k.Rows(0, used),
                                                      .v = heads.v.Rows(0, used),
                                                      .slots = slots_.Rows(0, used),
                                                      .k_cache = cache.keys,
                                                      .v_cache = cache.values},
                                 context.stream));
    RETURN_IF_ERROR(kernels::Forward(kernels::PagedAttention{.q = heads.q.Rows(0, used),
                                                             .k_cache = cache.keys,
                                                             .v_cache = cache.values,
                                                             .block_table = table,
                                                             .cu_seqlens = pass.cu_seqlens,
                                                             .context_lengths = pass.context_lengths,
                                                             .scale = AttentionScale(config),
                                                             .window = config.windows[index],
                                                             .out = out},
                                     context.stream));
    RETURN_IF_ERROR(AttentionOutputAndGates(context, weights.layers[index], activations_, branch_));
    RETURN_IF_ERROR(DownProjection(context, weights.layers[index], activations_, branch_));
  }
  return absl::OkStatus();
}

absl::StatusOr<ConstTensorView> RolloutModel::Head(const Pass& pass, const LayerContext& context) {
  const ModelConfig& config = parameters_->config();
  const ModelWeights& weights = parameters_->weights();
  const int64_t rows = context.tokens;
  const auto wanted = static_cast<int64_t>(pass.logit_rows.size());
  if (wanted == 0) return ConstTensorView(logits_.Rows(0, 0));
  RETURN_IF_ERROR(kernels::Forward(kernels::RmsNormForward{.x = branch_.Rows(0, rows),
                                                           .residual = activations_.residual_mid.Rows(0, rows),
                                                           .weight = weights.final_norm,
                                                           .eps = config.rms_norm_eps,
                                                           .residual_out = final_residual_.Rows(0, rows),
                                                           .y = hidden_.Rows(0, rows),
                                                           .rstd = final_rstd_.Rows(0, rows)},
                                   context.stream));
  // The wanted rows, gathered as an embedding gathers its rows.
  RETURN_IF_ERROR(kernels::Forward(
      kernels::EmbeddingForward{
          .ids = logit_rows_.Rows(0, wanted), .weight = hidden_.Rows(0, rows), .y = head_input_.Rows(0, wanted)},
      context.stream));
  const int64_t head_rows = RowsFor(wanted, options_.max_sequences, parameters_->device());
  RETURN_IF_ERROR(kernels::Run(
      kernels::MatMul{
          .a = head_input_.Rows(0, head_rows), .b = weights.head, .transpose_b = true, .c = logits_.Rows(0, head_rows)},
      context.stream));
  const TensorView logits = logits_.Rows(0, wanted);
  if (logits.device.is_cpu()) return ConstTensorView(logits);
  host_logits_.resize(static_cast<size_t>(logits.elements()));
  const TensorView host(host_logits_.data(), logits.shape);
  RETURN_IF_ERROR(CopyTensor(logits, host));
  return ConstTensorView(host);
}

}  // namespace sluice::engine
