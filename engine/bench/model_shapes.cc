#include "engine/bench/model_shapes.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::engine {
namespace {

struct Row {
  const char* name;
  const char* architecture;
  int vocab, hidden, intermediate, layers, heads, kv_heads, head_dim;
  bool tied;
  double rope_theta;
};

// From the models' published config.json files.
constexpr Row kRows[] = {
    {"smollm2-135m", "LlamaForCausalLM", 49152, 576, 1536, 30, 9, 3, 64, true, 1e5},
    {"qwen2.5-0.5b", "Qwen2ForCausalLM", 151936, 896, 4864, 24, 14, 2, 64, true, 1e6},
    {"qwen2.5-1.5b", "Qwen2ForCausalLM", 151936, 1536, 8960, 28, 12, 2, 128, true, 1e6},
    {"qwen2.5-3b", "Qwen2ForCausalLM", 151936, 2048, 11008, 36, 16, 2, 128, true, 1e6},
    {"qwen2.5-7b", "Qwen2ForCausalLM", 152064, 3584, 18944, 28, 28, 4, 128, false, 1e6},
    {"qwen3-0.6b", "Qwen3ForCausalLM", 151936, 1024, 3072, 28, 16, 8, 128, true, 1e6},
    {"qwen3-8b", "Qwen3ForCausalLM", 151936, 4096, 12288, 36, 32, 8, 128, false, 1e6},
    {"llama3.2-1b", "LlamaForCausalLM", 128256, 2048, 8192, 16, 32, 8, 64, true, 5e5},
    {"llama3-8b", "LlamaForCausalLM", 128256, 4096, 14336, 32, 32, 8, 128, false, 5e5},
};

}  // namespace

std::vector<std::string> ModelShapeNames() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

absl::StatusOr<ModelConfig> ModelShape(const std::string& name, int64_t layers) {
  for (const Row& row : kRows) {
    if (name != row.name) continue;
    const nlohmann::json config = {{"architectures", {row.architecture}},
                                   {"model_type", absl::StrContains(row.architecture, "Qwen3")   ? "qwen3"
                                                  : absl::StrContains(row.architecture, "Qwen2") ? "qwen2"
                                                                                                 : "llama"},
                                   {"vocab_size", row.vocab},
                                   {"hidden_size", row.hidden},
                                   {"intermediate_size", row.intermediate},
                                   {"num_hidden_layers", layers > 0 ? layers : row.layers},
                                   {"num_attention_heads", row.heads},
                                   {"num_key_value_heads", row.kv_heads},
                                   {"head_dim", row.head_dim},
                                   {"tie_word_embeddings", row.tied},
                                   {"rope_theta", row.rope_theta},
                                   {"max_position_embeddings", 32768},
                                   {"rms_norm_eps", 1e-6},
                                   {"hidden_act", "silu"}};
    return ParseModelConfig(config.dump());
  }
  return absl::NotFoundError(
      absl::StrCat("no model shape is called ", name, "; there are ", absl::StrJoin(ModelShapeNames(), ", ")));
}

}  // namespace sluice::engine
