// The sizes of a model, from its config.json: for the plan and for checks that need no weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

struct ModelFacts {
  std::string architecture;  // "LlamaForCausalLM"; with a value head "LlamaForSequenceClassification"
  int64_t layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t attention_heads = 0;
  int64_t key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  bool tied_embeddings = false;  // the output head is the embedding
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool value_head = false;  // one number a token in place of the output head: hidden_size parameters
  int64_t parameters = 0;   // a tied head counts once
};

// The same model with a value head.
ModelFacts WithValueHead(ModelFacts facts);

// From the text of a config.json; `override_config` replaces its keys first. InvalidArgument, naming the key: not JSON,
// a size missing or below 1, heads that do not divide, an architecture other than Llama, Mistral, Qwen2 and Qwen3.
absl::StatusOr<ModelFacts> ParseModelFacts(const std::string& config_json,
                                           const google::protobuf::Struct& override_config = {});

// The same for the folder that `model` names (hf_config_path, else path). Errors name the file.
absl::StatusOr<ModelFacts> ReadModelFacts(const v1::ModelSpec& model, FileSystem& file_system);

// The same with a value head; the folder's model may be a language model or have one.
absl::StatusOr<ModelFacts> ReadValueModelFacts(const v1::ModelSpec& model, FileSystem& file_system);

// The critic's, with its value head: critic.path's, else those of `model`.
absl::StatusOr<ModelFacts> ReadCriticFacts(const v1::JobSpec& spec, FileSystem& file_system);

// All models of a job.
struct JobModels {
  struct Reward {
    std::string label;
    ModelFacts facts;
  };
  ModelFacts trained;                   // with a value head where a reward model is trained
  std::optional<ModelFacts> critic;     // where the data flow has one
  std::optional<ModelFacts> reference;  // where reference.path names another model and the job compares with it
  std::vector<Reward> rewards;          // rewards of kind `model`
};
absl::StatusOr<JobModels> ReadJobModels(const v1::JobSpec& spec, FileSystem& file_system);

}  // namespace sluice
