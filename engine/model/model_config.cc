#include "engine/model/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

using Json = nlohmann::json;

// Whether a part of the layer is there: for the architecture, or as a key of config.json says.
enum class Part { kNever, kAlways, kAttentionBiasKey, kMlpBiasKey };
enum class Windows { kNone, kEveryLayer, kByLayerType };

// One row per architecture: what the layers have, and the defaults that differ between them.
struct Architecture {
  std::string_view name;
  Part qkv_bias;
  Part attention_output_bias;
  Part mlp_bias;
  bool qk_norm;
  Windows windows;
  int64_t default_kv_heads;  // 0: as many as query heads
  int64_t default_head_dim;  // 0: hidden_size / num_attention_heads
  int64_t default_max_position_embeddings;
};

constexpr std::array kArchitectures = {
    Architecture{"LlamaForCausalLM", Part::kAttentionBiasKey, Part::kAttentionBiasKey, Part::kMlpBiasKey, false,
                 Windows::kNone, 0, 0, 2048},
    Architecture{"MistralForCausalLM", Part::kNever, Part::kNever, Part::kNever, false, Windows::kEveryLayer, 8, 0,
                 131072},
    Architecture{"Qwen2ForCausalLM", Part::kAlways, Part::kNever, Part::kNever, false, Windows::kByLayerType, 32, 0,
                 32768},
    Architecture{"Qwen3ForCausalLM", Part::kAttentionBiasKey, Part::kAttentionBiasKey, Part::kNever, true,
                 Windows::kByLayerType, 32, 128, 32768},
};

// Every key that changes the computation or the export: the keys an override may add to a file that lacks them.
constexpr std::array<std::string_view, 27> kKnownKeys = {"architectures",       "vocab_size",
                                                         "hidden_size",         "intermediate_size",
                                                         "num_hidden_layers",   "num_attention_heads",
                                                         "num_key_value_heads", "head_dim",
                                                         "rms_norm_eps",        "max_position_embeddings",
                                                         "attention_bias",      "mlp_bias",
                                                         "rope_theta",          "rope_scaling",
                                                         "rope_parameters",     "sliding_window",
                                                         "use_sliding_window",  "max_window_layers",
                                                         "layer_types",         "tie_word_embeddings",
                                                         "initializer_range",   "hidden_act",
                                                         "torch_dtype",         "dtype",
                                                         "eos_token_id",        "bos_token_id",
                                                         "pad_token_id"};

absl::Status Invalid(const std::string& key, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("config.json: ", key, ": ", what));
}

std::string Show(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Typed reads of one JSON object; `prefix` leads the key in messages ("rope_scaling.").
class Reader {
 public:
  explicit Reader(const Json& object, std::string prefix = "") : object_(object), prefix_(std::move(prefix)) {}

  // A key that is absent or null counts as not given.
  bool Has(const std::string& key) const { return object_.contains(key) && !object_[key].is_null(); }

  absl::StatusOr<int64_t> Integer(const std::string& key, std::optional<int64_t> fallback, int64_t minimum) const {
    if (!Has(key)) {
      if (fallback.has_value()) return *fallback;
      return Invalid(prefix_ + key, "is missing");
    }
    const Json& value = object_[key];
    // Overrides come through a protobuf Struct, which has no integers: 8.0 is 8.
    const bool whole = value.is_number() && std::nearbyint(value.get<double>()) == value.get<double>() &&
                       std::abs(value.get<double>()) < 1e15;
    if (!whole) return Invalid(prefix_ + key, absl::StrCat("is ", Show(value), ", expected a whole number"));
    const int64_t number = static_cast<int64_t>(value.get<double>());
    if (number < minimum) {
      return Invalid(prefix_ + key, absl::StrCat("is ", number, ", expected at least ", minimum));
    }
    return number;
  }

  absl::StatusOr<double> Positive(const std::string& key, std::optional<double> fallback) const {
    if (!Has(key)) {
      if (fallback.has_value()) return *fallback;
      return Invalid(prefix_ + key, "is missing");
    }
    const Json& value = object_[key];
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) {
      return Invalid(prefix_ + key, absl::StrCat("is ", Show(value), ", expected a number larger than 0"));
    }
    return value.get<double>();
  }

  absl::StatusOr<bool> Bool(const std::string& key, bool fallback) const {
    if (!Has(key)) return fallback;
    if (!object_[key].is_boolean()) {
      return Invalid(prefix_ + key, absl::StrCat("is ", Show(object_[key]), ", expected true or false"));
    }
    return object_[key].get<bool>();
  }

  absl::StatusOr<std::string> String(const std::string& key, const std::string& fallback) const {
    if (!Has(key)) return fallback;
    if (!object_[key].is_string()) {
      return Invalid(prefix_ + key, absl::StrCat("is ", Show(object_[key]), ", expected a string"));
    }
    return object_[key].get<std::string>();
  }

 private:
  const Json& object_;
  std::string prefix_;
};

absl::StatusOr<Json> ParseObject(std::string_view text, const std::string& what) {
  try {
    Json json = Json::parse(text);
    if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(what, ": expected one JSON object"));
    return json;
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": not valid JSON at byte ", error.byte));
  }
}

// Keys replace keys. An override in one spelling of RoPE reaches a file written in the other.
absl::Status ApplyOverrides(const Json& overrides, Json& config) {
  for (const auto& [key, value] : overrides.items()) {
    const bool known = std::find(kKnownKeys.begin(), kKnownKeys.end(), key) != kKnownKeys.end();
    if (!known && !config.contains(key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.override_config.", key, ": config.json has no such key and no supported model reads it"));
    }
  }
  const bool new_spelling = config.contains("rope_parameters") && config["rope_parameters"].is_object();
  for (const auto& [key, value] : overrides.items()) {
    if (key == "rope_parameters") {
      config.erase("rope_scaling");
      config.erase("rope_theta");
    }
    if (new_spelling && !overrides.contains("rope_parameters")) {
      Json& rope = config["rope_parameters"];
      if (key == "rope_theta") {
        rope["rope_theta"] = value;
        continue;
      }
      if (key == "rope_scaling") {
        Json merged = value.is_object() ? value : Json::object();
        if (!merged.contains("rope_theta") && rope.contains("rope_theta")) merged["rope_theta"] = rope["rope_theta"];
        rope = std::move(merged);
        continue;
      }
    }
    config[key] = value;
  }
  return absl::OkStatus();
}

constexpr std::string_view kLanguageModel = "ForCausalLM";
constexpr std::string_view kClassifier = "ForSequenceClassification";

// The name of the class with the same layers and another head.
std::string WithHead(std::string_view name, std::string_view from, std::string_view to) {
  return absl::StrCat(std::string(name.substr(0, name.size() - from.size())), std::string(to));
}

// A classifier is a value head if it has one label; its names are what `transformers` counts.
absl::Status CheckOneLabel(const Json& config) {
  const auto names = config.find("id2label");
  const auto count = config.find("num_labels");
  const bool one =
      names != config.end() && names->is_object() ? names->size() == 1 : count != config.end() && *count == 1;
  return one ? absl::OkStatus() : Invalid("id2label", "a value head is a classifier with one label");
}

absl::StatusOr<const Architecture*> FindArchitecture(const Json& config, bool value_head) {
  std::string supported;
  for (const Architecture& row : kArchitectures)
    absl::StrAppend(&supported, supported.empty() ? "" : ", ", std::string(row.name));
  const auto it = config.find("architectures");
  if (it == config.end() || !it->is_array() || it->size() != 1 || !(*it)[0].is_string()) {
    return Invalid("architectures", absl::StrCat("expected a list of one name, one of ", supported));
  }
  std::string name = (*it)[0].get<std::string>();
  if (value_head && name.ends_with(kClassifier)) {
    RETURN_IF_ERROR(CheckOneLabel(config));
    name = WithHead(name, kClassifier, kLanguageModel);
  }
  for (const Architecture& row : kArchitectures) {
    if (row.name == name) return &row;
  }
  return Invalid("architectures", absl::StrCat(name, " is not supported (supported: ", supported, ")"));
}

absl::StatusOr<RopeConfig> ReadRope(const Json& config, int64_t max_position_embeddings) {
  const Reader top(config);
  const std::string key = top.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  static const Json kEmpty = Json::object();
  const Json& object = top.Has(key) ? config[key] : kEmpty;
  if (!object.is_object()) return Invalid(key, absl::StrCat("is ", Show(object), ", expected an object"));
  const Reader reader(object, key + ".");

  RopeConfig rope;
  ASSIGN_OR_RETURN(const double top_theta, top.Positive("rope_theta", 10000.0));
  ASSIGN_OR_RETURN(rope.theta, reader.Positive("rope_theta", top_theta));
  for (const Reader& scope : {top, reader}) {
    ASSIGN_OR_RETURN(const double partial, scope.Positive("partial_rotary_factor", 1.0));
    if (partial != 1.0) return Invalid("partial_rotary_factor", "only 1.0 is supported");
  }
  ASSIGN_OR_RETURN(const std::string old_type, reader.String("type", "default"));
  ASSIGN_OR_RETURN(const std::string type, reader.String("rope_type", old_type));
  if (type == "default") return rope;
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
    ASSIGN_OR_RETURN(rope.factor, reader.Positive("factor", std::nullopt));
    return rope;
  }
  if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama3;
    ASSIGN_OR_RETURN(rope.factor, reader.Positive("factor", std::nullopt));
    ASSIGN_OR_RETURN(rope.low_freq_factor, reader.Positive("low_freq_factor", std::nullopt));
    ASSIGN_OR_RETURN(rope.high_freq_factor, reader.Positive("high_freq_factor", std::nullopt));
    ASSIGN_OR_RETURN(rope.original_max_position_embeddings,
                     reader.Integer("original_max_position_embeddings", max_position_embeddings, 1));
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      return Invalid(key + ".high_freq_factor", "must be larger than low_freq_factor");
    }
    return rope;
  }
  return Invalid(key + ".rope_type", absl::StrCat(type, " is not supported (supported: default, linear, llama3)"));
}

absl::StatusOr<std::vector<int64_t>> ReadWindows(const Json& config, const Architecture& architecture, int64_t layers) {
  const Reader reader(config);
  std::vector<int64_t> windows(static_cast<size_t>(layers), 0);
  if (architecture.windows == Windows::kNone) return windows;
  if (architecture.windows == Windows::kEveryLayer) {
    // A Mistral file without the key has the published 4096; null says: none.
    if (config.contains("sliding_window") && config["sliding_window"].is_null()) return windows;
    ASSIGN_OR_RETURN(const int64_t window, reader.Integer("sliding_window", 4096, 1));
    std::fill(windows.begin(), windows.end(), window);
    return windows;
  }

  ASSIGN_OR_RETURN(const bool use_sliding_window, reader.Bool("use_sliding_window", false));
  int64_t window = 0;
  if (use_sliding_window && !(config.contains("sliding_window") && config["sliding_window"].is_null())) {
    ASSIGN_OR_RETURN(window, reader.Integer("sliding_window", 4096, 1));
  }
  ASSIGN_OR_RETURN(const int64_t first_sliding_layer, reader.Integer("max_window_layers", 28, 0));
  if (!reader.Has("layer_types")) {
    for (int64_t layer = first_sliding_layer; layer < layers; ++layer) windows[static_cast<size_t>(layer)] = window;
    return windows;
  }
  const Json& types = config["layer_types"];
  if (!types.is_array() || static_cast<int64_t>(types.size()) != layers) {
    return Invalid("layer_types", absl::StrCat("expected a list of ", layers, " layer types (num_hidden_layers)"));
  }
  for (size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] == "full_attention") continue;
    if (types[layer] != "sliding_attention") {
      return Invalid(absl::StrCat("layer_types[", layer, "]"),
                     absl::StrCat("is ", Show(types[layer]), ", expected full_attention or sliding_attention"));
    }
    windows[layer] = window;
  }
  return windows;
}

absl::StatusOr<kernels::DType> ReadStorageDType(const Json& config) {
  const Reader reader(config);
  ASSIGN_OR_RETURN(const std::string old_key, reader.String("torch_dtype", "float32"));
  ASSIGN_OR_RETURN(const std::string name, reader.String("dtype", old_key));
  return name == "bfloat16" ? kernels::DType::kBFloat16 : kernels::DType::kFloat32;
}

absl::StatusOr<std::vector<int32_t>> ReadEosTokenIds(const Json& config, int64_t vocab_size) {
  std::vector<int32_t> ids;
  const auto it = config.find("eos_token_id");
  if (it == config.end() || it->is_null()) return ids;
  const Json list = it->is_array() ? *it : Json::array({*it});
  for (const Json& id : list) {
    if (!id.is_number() || id.get<double>() < 0 || id.get<double>() >= static_cast<double>(vocab_size)) {
      return Invalid("eos_token_id",
                     absl::StrCat("is ", Show(id), ", expected a token id below vocab_size ", vocab_size));
    }
    ids.push_back(static_cast<int32_t>(id.get<double>()));
  }
  return ids;
}

absl::StatusOr<bool> ReadPart(const Reader& reader, Part part) {
  switch (part) {
    case Part::kNever:
      return false;
    case Part::kAlways:
      return true;
    case Part::kAttentionBiasKey:
      return reader.Bool("attention_bias", false);
    case Part::kMlpBiasKey:
      return reader.Bool("mlp_bias", false);
  }
  return false;
}

absl::Status CheckSizes(const ModelConfig& config, bool has_head_dim) {
  if (!has_head_dim && config.hidden_size % config.heads != 0) {
    return Invalid("hidden_size", absl::StrCat("is ", config.hidden_size, ", not a multiple of num_attention_heads ",
                                               config.heads, " (and there is no head_dim)"));
  }
  if (config.heads % config.kv_heads != 0) {
    return Invalid("num_attention_heads",
                   absl::StrCat("is ", config.heads, ", not a multiple of num_key_value_heads ", config.kv_heads));
  }
  if (config.head_dim % 2 != 0) {
    return Invalid("head_dim", absl::StrCat("is ", config.head_dim, ", must be even for rotary embeddings"));
  }
  if (config.hidden_size % 8 != 0) {
    return Invalid("hidden_size", absl::StrCat("is ", config.hidden_size, ", must be a multiple of 8"));
  }
  if (config.qk_norm && config.head_dim % 8 != 0) {
    return Invalid("head_dim", absl::StrCat("is ", config.head_dim, ", must be a multiple of 8 (query and key norm)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> Parse(std::string_view config_json, std::string_view override_json, bool value_head) {
  ASSIGN_OR_RETURN(Json json, ParseObject(config_json, "config.json"));
  if (!override_json.empty()) {
    ASSIGN_OR_RETURN(const Json overrides, ParseObject(override_json, "model.override_config"));
    RETURN_IF_ERROR(ApplyOverrides(overrides, json));
  }
  ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(json, value_head));
  const Reader reader(json);

  ModelConfig config;
  config.value_head = value_head;
  config.architecture = std::string(architecture->name);
  ASSIGN_OR_RETURN(config.vocab_size, reader.Integer("vocab_size", std::nullopt, 1));
  ASSIGN_OR_RETURN(config.hidden_size, reader.Integer("hidden_size", std::nullopt, 1));
  ASSIGN_OR_RETURN(config.intermediate_size, reader.Integer("intermediate_size", std::nullopt, 1));
  ASSIGN_OR_RETURN(config.layers, reader.Integer("num_hidden_layers", std::nullopt, 1));
  ASSIGN_OR_RETURN(config.heads, reader.Integer("num_attention_heads", std::nullopt, 1));
  // null says: as many as query heads; absent is the architecture's default.
  const bool kv_heads_null = json.contains("num_key_value_heads") && json["num_key_value_heads"].is_null();
  const int64_t default_kv_heads =
      architecture->default_kv_heads > 0 && !kv_heads_null ? architecture->default_kv_heads : config.heads;
  ASSIGN_OR_RETURN(config.kv_heads, reader.Integer("num_key_value_heads", default_kv_heads, 1));
  const int64_t default_head_dim =
      architecture->default_head_dim > 0 ? architecture->default_head_dim : config.hidden_size / config.heads;
  ASSIGN_OR_RETURN(config.head_dim, reader.Integer("head_dim", default_head_dim, 1));
  ASSIGN_OR_RETURN(config.max_position_embeddings,
                   reader.Integer("max_position_embeddings", architecture->default_max_position_embeddings, 1));
  ASSIGN_OR_RETURN(const double eps, reader.Positive("rms_norm_eps", 1e-6));
  config.rms_norm_eps = static_cast<float>(eps);
  ASSIGN_OR_RETURN(config.qkv_bias, ReadPart(reader, architecture->qkv_bias));
  ASSIGN_OR_RETURN(config.attention_output_bias, ReadPart(reader, architecture->attention_output_bias));
  ASSIGN_OR_RETURN(config.mlp_bias, ReadPart(reader, architecture->mlp_bias));
  config.qk_norm = architecture->qk_norm;
  ASSIGN_OR_RETURN(config.tie_word_embeddings, reader.Bool("tie_word_embeddings", false));
  ASSIGN_OR_RETURN(config.initializer_range, reader.Positive("initializer_range", 0.02));
  ASSIGN_OR_RETURN(config.rope, ReadRope(json, config.max_position_embeddings));
  ASSIGN_OR_RETURN(config.windows, ReadWindows(json, *architecture, config.layers));
  ASSIGN_OR_RETURN(config.storage_dtype, ReadStorageDType(json));
  ASSIGN_OR_RETURN(config.eos_token_ids, ReadEosTokenIds(json, config.vocab_size));
  ASSIGN_OR_RETURN(const std::string activation, reader.String("hidden_act", "silu"));
  if (activation != "silu" && activation != "swish") {
    return Invalid("hidden_act", absl::StrCat(activation, " is not supported (supported: silu)"));
  }
  RETURN_IF_ERROR(CheckSizes(config, reader.Has("head_dim") || architecture->default_head_dim > 0));
  config.json = json.dump(2, ' ', false, Json::error_handler_t::replace);
  return config;
}

absl::StatusOr<ModelConfig> Load(const std::filesystem::path& folder, std::string_view override_json, bool value_head) {
  std::ifstream file(folder / "config.json", std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat(folder.string(), " has no readable config.json (is it a Hugging Face model folder?)"));
  }
  std::stringstream text;
  text << file.rdbuf();
  auto config = Parse(text.str(), override_json, value_head);
  if (!config.ok()) return Annotate(config.status(), folder.string());
  return config;
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json, std::string_view override_json) {
  return Parse(config_json, override_json, /*value_head=*/false);
}

absl::StatusOr<ModelConfig> ParseValueModelConfig(std::string_view config_json, std::string_view override_json) {
  return Parse(config_json, override_json, /*value_head=*/true);
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::filesystem::path& folder, std::string_view override_json) {
  return Load(folder, override_json, /*value_head=*/false);
}

absl::StatusOr<ModelConfig> LoadValueModelConfig(const std::filesystem::path& folder, std::string_view override_json) {
  return Load(folder, override_json, /*value_head=*/true);
}

std::string ExportConfigJson(const ModelConfig& config, kernels::DType storage_dtype) {
  // Parsed before, so it parses again.
  Json json = Json::parse(config.json, nullptr, /*allow_exceptions=*/false);
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  if (config.value_head) {
    json["architectures"] = Json::array({WithHead(config.architecture, kLanguageModel, kClassifier)});
    json["id2label"] = {{"0", "LABEL_0"}};
    json["label2id"] = {{"LABEL_0", 0}};
  }
  const char* name = storage_dtype == kernels::DType::kBFloat16 ? "bfloat16" : "float32";
  json[json.contains("dtype") && !json.contains("torch_dtype") ? "dtype" : "torch_dtype"] = name;
  if (json.contains("dtype")) json["dtype"] = name;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::Status CheckVocabularySize(const ModelConfig& config, int64_t tokenizer_vocab_size) {
  if (tokenizer_vocab_size <= config.vocab_size) return absl::OkStatus();
  return Invalid("vocab_size",
                 absl::StrFormat("is %d, but the tokenizer has ids up to %d (is the tokenizer of another model?)",
                                 config.vocab_size, tokenizer_vocab_size - 1));
}

}  // namespace sluice::engine
