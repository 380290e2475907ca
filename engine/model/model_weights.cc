#include "engine/model/model_weights.h"

#include "absl/strings/str_cat.h"

namespace sluice::engine {
namespace {

using kernels::Shape;
using kernels::TensorView;

// `shape` elements from the start of the parameter `first`: a fused group is named by its first member.
TensorView Carve(const ParameterLayout& layout, TensorView flat, const std::string& first, Shape shape) {
  const ParameterSpec* spec = layout.Find(first);
  if (spec == nullptr) return TensorView::Empty();
  return flat.Rows(spec->offset, spec->offset + shape.elements()).Reshaped(shape);
}

}  // namespace

ModelWeights CarveWeights(const ModelConfig& config, const ParameterLayout& layout, TensorView flat) {
  const int64_t hidden = config.hidden_size;
  ModelWeights weights;
  weights.embedding = Carve(layout, flat, "model.embed_tokens.weight", {config.vocab_size, hidden});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto carve = [&](const char* first, Shape shape) {
      return Carve(layout, flat, absl::StrCat("model.layers.", layer, ".", first), shape);
    };
    LayerWeights& w = weights.layers.emplace_back();
    w.input_norm = carve("input_layernorm.weight", {hidden});
    w.qkv = carve("self_attn.q_proj.weight", {config.qkv_size(), hidden});
    w.qkv_bias = carve("self_attn.q_proj.bias", {config.qkv_size()});
    w.q_norm = carve("self_attn.q_norm.weight", {config.head_dim});
    w.k_norm = carve("self_attn.k_norm.weight", {config.head_dim});
    w.output = carve("self_attn.o_proj.weight", {hidden, config.query_size()});
    w.output_bias = carve("self_attn.o_proj.bias", {hidden});
    w.post_attention_norm = carve("post_attention_layernorm.weight", {hidden});
    w.gate_up = carve("mlp.gate_proj.weight", {2 * config.intermediate_size, hidden});
    w.gate_up_bias = carve("mlp.gate_proj.bias", {2 * config.intermediate_size});
    w.down = carve("mlp.down_proj.weight", {hidden, config.intermediate_size});
    w.down_bias = carve("mlp.down_proj.bias", {hidden});
  }
  weights.final_norm = Carve(layout, flat, "model.norm.weight", {hidden});
  if (config.value_head) {
    weights.head = Carve(layout, flat, "score.weight", {1, hidden});
    return weights;
  }
  weights.head = config.tie_word_embeddings ? weights.embedding
                                            : Carve(layout, flat, "lm_head.weight", {config.vocab_size, hidden});
  return weights;
}

}  // namespace sluice::engine
