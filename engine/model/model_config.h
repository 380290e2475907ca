// What a decoder-only language model is made of, read from a Hugging Face config.json.
//
// One table row per architecture (model_config.cc) turns the file into this description; the layers know only the
// description. Supported `architectures`: LlamaForCausalLM (Llama 2/3.x, SmolLM2), MistralForCausalLM,
// Qwen2ForCausalLM (Qwen2/2.5) and Qwen3ForCausalLM. Keys that are absent take the defaults of `transformers` 5.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"

namespace sluice::engine {

struct RopeConfig {
  enum class Scaling { kNone, kLinear, kLlama3 };

  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;                           // linear, llama3
  double low_freq_factor = 1.0;                  // llama3
  double high_freq_factor = 4.0;                 // llama3
  int64_t original_max_position_embeddings = 0;  // llama3
};

struct ModelConfig {
  std::string architecture;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMS norm of each query and key head before the rotation (Qwen3)
  bool tie_word_embeddings = false;
  bool value_head = false;  // one number a token in place of the language-model head, tied or not
  RopeConfig rope;
  std::vector<int64_t> windows;  // [layers] tokens a query sees, itself included; 0: all before it
  double initializer_range = 0.02;
  kernels::DType storage_dtype =
      kernels::DType::kFloat32;        // bf16 if the file's torch_dtype (or dtype) says so, else fp32
  std::vector<int32_t> eos_token_ids;  // may be empty
  std::string json;                    // the file with the overrides applied, for writing it back

  int64_t query_size() const { return heads * head_dim; }
  int64_t kv_size() const { return kv_heads * head_dim; }
  int64_t qkv_size() const { return query_size() + 2 * kv_size(); }
};

// `override_json`: an object whose keys replace keys of the file (job key model.override_config), or empty. The two
// spellings of RoPE (`rope_theta` + `rope_scaling`, and `rope_parameters`) override each other.
// InvalidArgument, naming the key, for text that is not JSON, a missing or ill-typed key, sizes that do not divide, an
// architecture, activation or RoPE scaling that is not supported, an override of a key that exists nowhere.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json, std::string_view override_json = "");

// The same for a model with a value head: of a language model, whose own head is left out, or of its class for
// sequence classification ("LlamaForSequenceClassification") with one label. InvalidArgument: more labels.
absl::StatusOr<ModelConfig> ParseValueModelConfig(std::string_view config_json, std::string_view override_json = "");

// Reads folder/config.json. NotFound, naming the folder, where there is none.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::filesystem::path& folder, std::string_view override_json = "");
absl::StatusOr<ModelConfig> LoadValueModelConfig(const std::filesystem::path& folder,
                                                 std::string_view override_json = "");

// config.json of a model written by us: the source's own keys, with tied embeddings and storage type as they now are.
// With a value head: the class for sequence classification, with one label.
std::string ExportConfigJson(const ModelConfig& config, kernels::DType storage_dtype);

// InvalidArgument unless every id the tokenizer can produce has a row in the embedding.
// `tokenizer_vocab_size`: its largest id + 1. A model may have more rows than the tokenizer has tokens (padding).
absl::Status CheckVocabularySize(const ModelConfig& config, int64_t tokenizer_vocab_size);

}  // namespace sluice::engine
