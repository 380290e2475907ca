#include "engine/model/inference_session.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/device/engine_stream.h"
#include "engine/model/rotary.h"
#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/embedding/embedding.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"

namespace sluice::engine {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::TensorView;

// Attention of n new tokens at positions past .. past + n - 1 to all cached ones, with ATen: one sequence is too small
// for the packed kernel, whose queries and keys are the same tokens.
// q [n, Hq, D] strided, keys and values [past + n, Hkv, D], out [n, Hq, D].
void AttendToCache(TensorView q_view, TensorView keys_view, TensorView values_view, TensorView out_view, int64_t past,
                   int64_t window) {
  const int64_t tokens = q_view.dim(0), heads = q_view.dim(1), head_dim = q_view.dim(2);
  const int64_t total = keys_view.dim(0), kv_heads = keys_view.dim(1), group = heads / kv_heads;
  const at::Tensor q = kernels::AsTensor(q_view)
                           .reshape({tokens, kv_heads, group, head_dim})
                           .permute({1, 2, 0, 3})
                           .reshape({kv_heads, group * tokens, head_dim});
  const at::Tensor keys = kernels::AsTensor(keys_view).permute({1, 2, 0});      // [Hkv, D, total]
  const at::Tensor values = kernels::AsTensor(values_view).permute({1, 0, 2});  // [Hkv, total, D]
  at::Tensor scores = at::matmul(q, keys).to(at::kFloat).mul_(1.0 / std::sqrt(static_cast<double>(head_dim)));
  const bool windowed = window > 0 && total > window;
  if (tokens > 1 || windowed) {
    const at::TensorOptions options = at::TensorOptions().dtype(at::kLong).device(scores.device());
    const at::Tensor query_position = at::arange(past, past + tokens, options).unsqueeze(1);
    const at::Tensor key_position = at::arange(total, options).unsqueeze(0);
    at::Tensor hidden = key_position.gt(query_position);
    if (windowed) hidden = hidden.logical_or(key_position.le(query_position.sub(window)));
    scores.view({kv_heads, group, tokens, total}).masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor weights = at::softmax(scores, -1).to(values.scalar_type());
  const at::Tensor out = at::matmul(weights, values).reshape({kv_heads, group, tokens, head_dim});
  kernels::AsTensor(out_view).copy_(out.permute({2, 0, 1, 3}).reshape({tokens, heads, head_dim}));
}

}  // namespace

InferenceSession::InferenceSession(const Parameters* parameters, const InferenceOptions& options)
    : parameters_(parameters), options_(options) {
  options_.chunk_tokens = std::clamp<int64_t>(options_.chunk_tokens, 1, std::max<int64_t>(options_.max_tokens, 1));
}

absl::StatusOr<std::unique_ptr<InferenceSession>> InferenceSession::Create(const Parameters* parameters,
                                                                           const InferenceOptions& options) {
  if (options.max_tokens < 1) return absl::InvalidArgumentError("max_tokens must be at least 1");
  std::unique_ptr<InferenceSession> session(new InferenceSession(parameters, options));
  Carver size;
  session->Carve(size);
  ASSIGN_OR_RETURN(session->memory_, DeviceMemory::Allocate(size.bytes(), parameters->device()));
  Carver carver(session->memory_);
  session->Carve(carver);
  const ModelConfig& config = parameters->config();
  const std::vector<float> inv_freq = RotaryInverseFrequencies(config.rope, config.head_dim);
  RETURN_IF_ERROR(
      CopyTensor(ConstTensorView(inv_freq.data(), {static_cast<int64_t>(inv_freq.size())}), session->inv_freq_));
  return session;
}

void InferenceSession::Carve(Carver& carver) {
  const ModelConfig& config = parameters_->config();
  const DType dtype = parameters_->dtype();
  const kernels::Shape cache_shape = {options_.max_tokens, config.kv_heads, config.head_dim};
  caches_.clear();
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    LayerCache& cache = caches_.emplace_back();
    cache.keys = carver.Take(dtype, cache_shape);
    cache.values = carver.Take(dtype, cache_shape);
  }
  token_ids_ = carver.Take(DType::kInt32, {options_.chunk_tokens});
  position_ids_ = carver.Take(DType::kInt32, {options_.chunk_tokens});
  inv_freq_ = carver.Take(DType::kFloat32, {config.head_dim / 2});
  cos_sin_ = carver.Take(DType::kFloat32, {options_.chunk_tokens, config.head_dim});
  const LayerActivations shared =
      LayerActivations::CarveShared(config, dtype, options_.chunk_tokens, Recompute::kNone, carver);
  activations_ = LayerActivations::Carve(config, dtype, options_.chunk_tokens, Recompute::kNone, shared, carver);
  branch_ = carver.Take(dtype, {options_.chunk_tokens, config.hidden_size});
  final_residual_ = carver.Take(dtype, {1, config.hidden_size});
  final_rstd_ = carver.Take(DType::kFloat32, {1});
  hidden_ = carver.Take(dtype, {1, config.hidden_size});
  logits_ = carver.Take(DType::kFloat32, {1, config.vocab_size});
}

absl::StatusOr<std::vector<float>> InferenceSession::Append(std::span<const int32_t> token_ids) {
  const int64_t count = static_cast<int64_t>(token_ids.size());
  if (count == 0) return absl::InvalidArgumentError("no tokens to append");
  if (length_ + count > options_.max_tokens) {
    return absl::OutOfRangeError(
        absl::StrCat("a sequence of ", length_ + count, " tokens, the session holds ", options_.max_tokens));
  }
  for (const int32_t id : token_ids) {
    if (id < 0 || id >= config().vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("token id ", id, " is outside of the vocabulary (", config().vocab_size, ")"));
    }
  }
  int64_t last_chunk = 0;
  for (int64_t begin = 0; begin < count; begin += last_chunk) {
    last_chunk = std::min(options_.chunk_tokens, count - begin);
    RETURN_IF_ERROR(AppendChunk(token_ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(last_chunk))));
  }
  return LastLogits(last_chunk);
}

absl::Status InferenceSession::AppendChunk(std::span<const int32_t> token_ids) {
  const int64_t tokens = static_cast<int64_t>(token_ids.size());
  std::vector<int32_t> positions(token_ids.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(length_));
  RETURN_IF_ERROR(CopyTensor(ConstTensorView(token_ids.data(), {tokens}), token_ids_.Rows(0, tokens)));
  RETURN_IF_ERROR(CopyTensor(ConstTensorView(positions.data(), {tokens}), position_ids_.Rows(0, tokens)));
  const LayerContext context{.config = &config(),
                             .tokens = tokens,
                             .cos_sin = cos_sin_.Rows(0, tokens),
                             .stream = EngineStream(parameters_->device())};
  RETURN_IF_ERROR(kernels::Run(
      kernels::RotaryTable{
          .positions = position_ids_.Rows(0, tokens), .inv_freq = inv_freq_, .cos_sin = cos_sin_.Rows(0, tokens)},
      context.stream));
  const ModelWeights& weights = parameters_->weights();
  RETURN_IF_ERROR(kernels::Forward(kernels::EmbeddingForward{.ids = token_ids_.Rows(0, tokens),
                                                             .weight = weights.embedding,
                                                             .y = activations_.residual_in.Rows(0, tokens)},
                                   context.stream));
  for (int64_t layer = 0; layer < config().layers; ++layer) {
    const LayerWeights& layer_weights = weights.layers[static_cast<size_t>(layer)];
    const ConstTensorView previous = layer == 0 ? ConstTensorView::Empty() : activations_.residual_mid;
    RETURN_IF_ERROR(AttentionInputs(context, previous, layer_weights, activations_, branch_));
    RETURN_IF_ERROR(CachedAttention(context, layer));
    RETURN_IF_ERROR(AttentionOutputAndGates(context, layer_weights, activations_, branch_));
    RETURN_IF_ERROR(DownProjection(context, layer_weights, activations_, branch_));
  }
  length_ += tokens;
  return absl::OkStatus();
}

absl::Status InferenceSession::CachedAttention(const LayerContext& context, int64_t layer) {
  const int64_t tokens = context.tokens;
  const LayerCache& cache = caches_[static_cast<size_t>(layer)];
  const AttentionHeads heads = HeadsOf(context, activations_);
  return kernels::CallAten("attention to the cache", context.stream, [&] {
    kernels::AsTensor(cache.keys.Rows(length_, length_ + tokens)).copy_(kernels::AsTensor(heads.k));
    kernels::AsTensor(cache.values.Rows(length_, length_ + tokens)).copy_(kernels::AsTensor(heads.v));
    AttendToCache(heads.q, cache.keys.Rows(0, length_ + tokens), cache.values.Rows(0, length_ + tokens),
                  activations_.attention.Rows(0, tokens).Reshaped({tokens, config().heads, config().head_dim}), length_,
                  config().windows[static_cast<size_t>(layer)]);
  });
}

absl::StatusOr<std::vector<float>> InferenceSession::LastLogits(int64_t chunk_tokens) {
  const kernels::Stream stream = EngineStream(parameters_->device());
  const ModelWeights& weights = parameters_->weights();
  RETURN_IF_ERROR(kernels::Forward(
      kernels::RmsNormForward{.x = branch_.Rows(chunk_tokens - 1, chunk_tokens),
                              .residual = activations_.residual_mid.Rows(chunk_tokens - 1, chunk_tokens),
                              .weight = weights.final_norm,
                              .eps = config().rms_norm_eps,
                              .residual_out = final_residual_,
                              .y = hidden_,
                              .rstd = final_rstd_},
      stream));
  RETURN_IF_ERROR(
      kernels::Run(kernels::MatMul{.a = hidden_, .b = weights.head, .transpose_b = true, .c = logits_}, stream));
  std::vector<float> host(static_cast<size_t>(config().vocab_size));
  RETURN_IF_ERROR(CopyTensor(logits_, TensorView(host.data(), logits_.shape)));
  return host;
}

absl::StatusOr<GeneratedTokens> GenerateGreedy(InferenceSession& session, std::span<const int32_t> prompt_ids,
                                               int64_t max_new_tokens, std::span<const int32_t> stop_token_ids,
                                               const std::function<bool(int32_t)>& on_token) {
  session.Reset();
  GeneratedTokens result;
  ASSIGN_OR_RETURN(std::vector<float> logits, session.Append(prompt_ids));
  while (static_cast<int64_t>(result.token_ids.size()) < max_new_tokens) {
    const int32_t next = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (std::find(stop_token_ids.begin(), stop_token_ids.end(), next) != stop_token_ids.end()) {
      result.stopped = true;
      break;
    }
    result.token_ids.push_back(next);
    if (on_token != nullptr && !on_token(next)) break;
    if (static_cast<int64_t>(result.token_ids.size()) == max_new_tokens || session.length() == session.max_tokens()) {
      break;
    }
    ASSIGN_OR_RETURN(logits, session.Append(std::span(&next, 1)));
  }
  return result;
}

}  // namespace sluice::engine
