#include "common/config/model_facts.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/config/dataflow.h"
#include "common/config/preference.h"
#include "common/config/rewards_from_spec.h"
#include "common/status.h"
#include "common/status_macros.h"

namespace sluice {
namespace {

// How the names of the classes in `transformers` end, of a language model and of the same layers with a value head.
constexpr char kLanguageModel[] = "ForCausalLM";
constexpr char kClassifier[] = "ForSequenceClassification";

// Linear layers, norms and embeddings of a decoder of the Llama family.
int64_t CountParameters(const ModelFacts& m) {
  const int64_t query = m.attention_heads * m.head_dim, key_value = m.key_value_heads * m.head_dim;
  int64_t layer = m.hidden_size * (query + 2 * key_value) + query * m.hidden_size;  // q, k, v, o
  layer += 3 * m.hidden_size * m.intermediate_size;                                 // gate, up, down
  layer += 2 * m.hidden_size;                                                       // the two norms
  if (m.qkv_bias) layer += query + 2 * key_value;
  if (m.attention_output_bias) layer += m.hidden_size;
  if (m.mlp_bias) layer += 2 * m.intermediate_size + m.hidden_size;
  if (m.qk_norm) layer += 2 * m.head_dim;
  int64_t embeddings = m.vocab_size * m.hidden_size;
  if (m.value_head) {
    embeddings += m.hidden_size;
  } else if (!m.tied_embeddings) {
    embeddings *= 2;
  }
  return m.layers * layer + m.hidden_size + embeddings;
}

absl::StatusOr<int64_t> Size(const nlohmann::json& config, const std::string& key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return absl::InvalidArgumentError(absl::StrCat(key, " is missing"));
  // override_config travels as doubles: 12 may come as 12.0.
  const bool whole =
      found->is_number_integer() || (found->is_number() && found->get<double>() == found->get<int64_t>());
  if (!whole || found->get<int64_t>() < 1 || found->get<int64_t>() > (int64_t{1} << 31)) {
    return absl::InvalidArgumentError(absl::StrCat(key, ": expected a whole number above 0, got ", found->dump()));
  }
  return found->get<int64_t>();
}

bool Truth(const nlohmann::json& config, const std::string& key, bool absent) {
  const auto found = config.find(key);
  return found != config.end() && found->is_boolean() ? found->get<bool>() : absent;
}

absl::StatusOr<std::string> Architecture(const nlohmann::json& config) {
  const auto found = config.find("architectures");
  if (found == config.end() || !found->is_array() || found->empty() || !(*found)[0].is_string()) {
    return absl::InvalidArgumentError("architectures: expected a list with the name of the model class");
  }
  const std::string name = (*found)[0];
  if (name != "LlamaForCausalLM" && name != "MistralForCausalLM" && name != "Qwen2ForCausalLM" &&
      name != "Qwen3ForCausalLM") {
    return absl::InvalidArgumentError(
        absl::StrCat("architectures: ", name,
                     " is not supported (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)"));
  }
  return name;
}

absl::StatusOr<ModelFacts> FactsOf(const nlohmann::json& config) {
  ModelFacts facts;
  ASSIGN_OR_RETURN(facts.architecture, Architecture(config));
  ASSIGN_OR_RETURN(facts.layers, Size(config, "num_hidden_layers"));
  ASSIGN_OR_RETURN(facts.hidden_size, Size(config, "hidden_size"));
  ASSIGN_OR_RETURN(facts.intermediate_size, Size(config, "intermediate_size"));
  ASSIGN_OR_RETURN(facts.attention_heads, Size(config, "num_attention_heads"));
  ASSIGN_OR_RETURN(facts.vocab_size, Size(config, "vocab_size"));
  facts.key_value_heads = facts.attention_heads;
  const auto given = [&](const char* key) { return config.contains(key) && !config.at(key).is_null(); };
  if (given("num_key_value_heads")) {
    ASSIGN_OR_RETURN(facts.key_value_heads, Size(config, "num_key_value_heads"));
  }
  if (facts.attention_heads % facts.key_value_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("num_attention_heads ", facts.attention_heads,
                                                   " does not divide by num_key_value_heads ", facts.key_value_heads));
  }
  if (given("head_dim")) {
    ASSIGN_OR_RETURN(facts.head_dim, Size(config, "head_dim"));
  } else if (facts.hidden_size % facts.attention_heads == 0) {
    facts.head_dim = facts.hidden_size / facts.attention_heads;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("hidden_size ", facts.hidden_size,
                                                   " does not divide by num_attention_heads ", facts.attention_heads));
  }
  facts.tied_embeddings = Truth(config, "tie_word_embeddings", false);
  // The modelling code of `transformers` decides: Qwen2 always has the q, k and v bias and never the others, Mistral
  // has none.
  const bool by_file = facts.architecture == "LlamaForCausalLM" || facts.architecture == "Qwen3ForCausalLM";
  facts.attention_output_bias = by_file && Truth(config, "attention_bias", false);
  facts.qkv_bias = facts.attention_output_bias || facts.architecture == "Qwen2ForCausalLM";
  facts.mlp_bias = facts.architecture == "LlamaForCausalLM" && Truth(config, "mlp_bias", false);
  facts.qk_norm = facts.architecture == "Qwen3ForCausalLM";
  facts.parameters = CountParameters(facts);
  return facts;
}

// The class of a model with a value head as that of the language model with the same layers.
void NameLanguageModel(nlohmann::json* config) {
  const auto found = config->find("architectures");
  if (found == config->end() || !found->is_array() || found->empty() || !(*found)[0].is_string()) return;
  const std::string name = (*found)[0];
  const size_t stem = name.find(kClassifier);
  if (stem != std::string::npos) (*found)[0] = name.substr(0, stem) + kLanguageModel;
}

std::string ConfigPath(const v1::ModelSpec& model) {
  return JoinPath(model.hf_config_path().empty() ? model.path() : model.hf_config_path(), "config.json");
}

v1::ModelSpec FolderOf(const std::string& path) {
  v1::ModelSpec model;
  model.set_path(path);
  return model;
}

}  // namespace

ModelFacts WithValueHead(ModelFacts facts) {
  facts.value_head = true;
  if (const size_t stem = facts.architecture.find(kLanguageModel); stem != std::string::npos) {
    facts.architecture = absl::StrCat(facts.architecture.substr(0, stem), kClassifier);
  }
  facts.parameters = CountParameters(facts);
  return facts;
}

absl::StatusOr<ModelFacts> ParseModelFacts(const std::string& config_json,
                                           const google::protobuf::Struct& override_config) {
  nlohmann::json config = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError("not a JSON object");
  std::string overrides;
  if (!google::protobuf::util::MessageToJsonString(override_config, &overrides).ok()) {
    return absl::InvalidArgumentError("model.override_config: has no JSON form");
  }
  const nlohmann::json replaced = nlohmann::json::parse(overrides, nullptr, /*allow_exceptions=*/false);
  if (replaced.is_object()) config.update(replaced);
  return FactsOf(config);
}

absl::StatusOr<ModelFacts> ReadModelFacts(const v1::ModelSpec& model, FileSystem& file_system) {
  const std::string path = ConfigPath(model);
  ASSIGN_OR_RETURN(const std::string text, file_system.ReadFile(path));
  auto facts = ParseModelFacts(text, model.override_config());
  if (!facts.ok()) return Annotate(facts.status(), path);
  return facts;
}

absl::StatusOr<ModelFacts> ReadValueModelFacts(const v1::ModelSpec& model, FileSystem& file_system) {
  const std::string path = ConfigPath(model);
  ASSIGN_OR_RETURN(const std::string text, file_system.ReadFile(path));
  nlohmann::json config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  NameLanguageModel(&config);
  auto facts = ParseModelFacts(config.dump(), model.override_config());
  if (!facts.ok()) return Annotate(facts.status(), path);
  return WithValueHead(*facts);
}

absl::StatusOr<ModelFacts> ReadCriticFacts(const v1::JobSpec& spec, FileSystem& file_system) {
  return ReadValueModelFacts(spec.critic().path().empty() ? spec.model() : FolderOf(spec.critic().path()), file_system);
}

absl::StatusOr<JobModels> ReadJobModels(const v1::JobSpec& spec, FileSystem& file_system) {
  JobModels models;
  ASSIGN_OR_RETURN(models.trained, TrainsRewardModel(spec) ? ReadValueModelFacts(spec.model(), file_system)
                                                           : ReadModelFacts(spec.model(), file_system));
  if (NeedsCritic(spec)) {
    ASSIGN_OR_RETURN(models.critic, ReadCriticFacts(spec, file_system));
  }
  if (ComparesWithAnother(spec)) {
    ASSIGN_OR_RETURN(models.reference, ReadModelFacts(FolderOf(spec.reference().path()), file_system));
  }
  for (const RewardModelFolder& reward : RewardModelsOf(spec)) {
    ASSIGN_OR_RETURN(ModelFacts facts, ReadValueModelFacts(FolderOf(reward.path), file_system));
    models.rewards.push_back({reward.label, std::move(facts)});
  }
  return models;
}

}  // namespace sluice
