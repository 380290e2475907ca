// Finds the chat template and special tokens of a Hugging Face model folder.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::engine {

struct HuggingFaceTemplate {
  // The template named "default"; absent where the folder has none (a base model).
  std::optional<std::string> source;
  // All named templates where there are several ("default", "tool_use", "rag"); otherwise "default" alone, or none.
  std::map<std::string, std::string> named;
  // bos_token, eos_token, pad_token, unk_token, ...: for RenderOptions::special_tokens.
  std::map<std::string, std::string> special_tokens;
};

// Reads chat_template.jinja (and additional_chat_templates/*.jinja, or chat_template.json), else `chat_template` of
// tokenizer_config.json: a string, or a list of {name, template}. Special tokens come from special_tokens_map.json and
// tokenizer_config.json, as a string or as {"content": ...}; the latter file wins.
// kNotFound where the folder is missing; kInvalidArgument naming the file where one is not as described.
absl::StatusOr<HuggingFaceTemplate> LoadHuggingFaceTemplate(const std::filesystem::path& folder);

}  // namespace sluice::engine
