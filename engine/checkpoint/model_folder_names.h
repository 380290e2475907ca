// Names of the files of a Hugging Face model folder.
#pragma once

namespace sluice::engine {

inline constexpr char kConfigName[] = "config.json";
inline constexpr char kSingleFileName[] = "model.safetensors";
inline constexpr char kIndexName[] = "model.safetensors.index.json";

// What a fine-tuned folder takes over from the folder it came from: tokenizer, chat template, generation defaults.
inline constexpr const char* kCompanionNames[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
};

}  // namespace sluice::engine
