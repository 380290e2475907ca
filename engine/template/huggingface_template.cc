#include "engine/template/huggingface_template.h"

#include <fstream>
#include <iterator>
#include <system_error>

#include "common/status.h"
#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/json.h"

namespace sluice::engine {
namespace {

using jinja::Value;

constexpr char kDefault[] = "default";

// nullopt where there is no such file.
absl::StatusOr<std::optional<std::string>> ReadIfThere(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.good() && !in.eof()) return absl::UnavailableError(path.string() + ": cannot be read");
  return text;
}

// The JSON object in the file; an empty one where there is no file.
absl::StatusOr<Value> ReadObject(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadIfThere(path));
  if (!text.has_value()) return Value::FromDict(jinja::Dict());
  absl::StatusOr<Value> object = jinja::ParseJson(*text);
  if (!object.ok()) return Annotate(object.status(), path.string());
  if (!object->is_dict()) return absl::InvalidArgumentError(path.string() + ": expected a JSON object");
  return object;
}

// chat_template is a string, or a list of {"name": ..., "template": ...}.
absl::Status AddTemplates(const Value& value, const std::filesystem::path& path, HuggingFaceTemplate* result) {
  if (value.is_undefined() || value.is_none()) return absl::OkStatus();
  if (value.is_string()) {
    result->named[kDefault] = value.string();
    return absl::OkStatus();
  }
  if (value.is_list()) {
    for (const Value& entry : value.items()) {
      const Value name = entry.Field("name");
      const Value source = entry.Field("template");
      if (!name.is_string() || !source.is_string()) {
        return absl::InvalidArgumentError(path.string() + ": chat_template: expected a list of {name, template}");
      }
      result->named[name.string()] = source.string();
    }
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(path.string() + ": chat_template: expected a string or a list of {name, template}");
}

absl::Status AddTemplateFiles(const std::filesystem::path& folder, HuggingFaceTemplate* result) {
  ASSIGN_OR_RETURN(const std::optional<std::string> source, ReadIfThere(folder / "chat_template.jinja"));
  if (source.has_value()) result->named[kDefault] = *source;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "additional_chat_templates", error)) {
    if (entry.path().extension() != ".jinja") continue;
    ASSIGN_OR_RETURN(const std::optional<std::string> more, ReadIfThere(entry.path()));
    if (more.has_value()) result->named[entry.path().stem().string()] = *more;
  }
  return absl::OkStatus();
}

// Every field "..._token" that is a string or {"content": string}.
void AddSpecialTokens(const Value& config, HuggingFaceTemplate* result) {
  for (const auto& [key, field] : config.dict().items()) {
    if (!key.string().ends_with("_token")) continue;
    const Value content = field.is_dict() ? field.Field("content") : field;
    if (content.is_string()) result->special_tokens[key.string()] = content.string();
  }
}

}  // namespace

absl::StatusOr<HuggingFaceTemplate> LoadHuggingFaceTemplate(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::NotFoundError(folder.string() + ": no such folder (expected a Hugging Face model folder)");
  }
  HuggingFaceTemplate result;
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  ASSIGN_OR_RETURN(const Value special_tokens, ReadObject(folder / "special_tokens_map.json"));
  ASSIGN_OR_RETURN(const Value config, ReadObject(config_path));
  AddSpecialTokens(special_tokens, &result);
  AddSpecialTokens(config, &result);

  RETURN_IF_ERROR(AddTemplateFiles(folder, &result));
  if (result.named.empty()) {
    const std::filesystem::path json_path = folder / "chat_template.json";
    ASSIGN_OR_RETURN(const Value object, ReadObject(json_path));
    RETURN_IF_ERROR(AddTemplates(object.Field("chat_template"), json_path, &result));
  }
  if (result.named.empty()) RETURN_IF_ERROR(AddTemplates(config.Field("chat_template"), config_path, &result));
  if (const auto found = result.named.find(kDefault); found != result.named.end()) result.source = found->second;
  return result;
}

}  // namespace sluice::engine
