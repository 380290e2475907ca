#include "engine/model/parameter_layout.h"

#include "absl/strings/str_cat.h"

namespace sluice::engine {

ParameterLayout::ParameterLayout(const ModelConfig& config) {
  AddMatrices(config);
  decayed_size_ = size_;
  AddNormsAndBiases(config);
}

void ParameterLayout::AddMatrices(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  Add("model.embed_tokens.weight", {config.vocab_size, hidden}, true);
  Align();
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    Add(prefix + "self_attn.q_proj.weight", {config.query_size(), hidden}, true);
    Add(prefix + "self_attn.k_proj.weight", {config.kv_size(), hidden}, true);
    Add(prefix + "self_attn.v_proj.weight", {config.kv_size(), hidden}, true);
    Align();
    Add(prefix + "self_attn.o_proj.weight", {hidden, config.query_size()}, true);
    Align();
    Add(prefix + "mlp.gate_proj.weight", {config.intermediate_size, hidden}, true);
    Add(prefix + "mlp.up_proj.weight", {config.intermediate_size, hidden}, true);
    Align();
    Add(prefix + "mlp.down_proj.weight", {hidden, config.intermediate_size}, true);
    Align();
  }
  if (config.value_head) {
    Add("score.weight", {1, hidden}, true);
    Align();
  } else if (!config.tie_word_embeddings) {
    Add("lm_head.weight", {config.vocab_size, hidden}, true);
    Align();
  }
}

void ParameterLayout::AddNormsAndBiases(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    Add(prefix + "input_layernorm.weight", {hidden}, false);
    Align();
    if (config.qkv_bias) {
      Add(prefix + "self_attn.q_proj.bias", {config.query_size()}, false);
      Add(prefix + "self_attn.k_proj.bias", {config.kv_size()}, false);
      Add(prefix + "self_attn.v_proj.bias", {config.kv_size()}, false);
      Align();
    }
    if (config.qk_norm) {
      Add(prefix + "self_attn.q_norm.weight", {config.head_dim}, false);
      Align();
      Add(prefix + "self_attn.k_norm.weight", {config.head_dim}, false);
      Align();
    }
    if (config.attention_output_bias) {
      Add(prefix + "self_attn.o_proj.bias", {hidden}, false);
      Align();
    }
    Add(prefix + "post_attention_layernorm.weight", {hidden}, false);
    Align();
    if (config.mlp_bias) {
      Add(prefix + "mlp.gate_proj.bias", {config.intermediate_size}, false);
      Add(prefix + "mlp.up_proj.bias", {config.intermediate_size}, false);
      Align();
      Add(prefix + "mlp.down_proj.bias", {hidden}, false);
      Align();
    }
  }
  Add("model.norm.weight", {hidden}, false);
  Align();
}

void ParameterLayout::Add(const std::string& name, kernels::Shape shape, bool decayed) {
  index_[name] = parameters_.size();
  parameters_.push_back({name, shape, size_, decayed});
  size_ += shape.elements();
  parameter_count_ += shape.elements();
}

void ParameterLayout::Align() { size_ = (size_ + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment; }

const ParameterSpec* ParameterLayout::Find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &parameters_[it->second];
}

}  // namespace sluice::engine
