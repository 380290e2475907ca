#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/tokenizer/tokenizer_parts.h"

namespace sluice::engine {
namespace {

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return absl::NotFoundError("no such file (a Hugging Face model folder has it)");
  if (std::filesystem::is_directory(path, error))
    return absl::InvalidArgumentError("is a folder, expected a tokenizer.json");
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return absl::UnavailableError("cannot be read (check its permissions)");
  return text;
}

absl::StatusOr<nlohmann::json> ParseJson(const std::string& text) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const bool cut_off = error.byte > text.size();
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON at byte ", error.byte, " of ", text.size(),
                                                   cut_off ? ": the file ends too early (an interrupted copy?)" : ""));
  }
}

// What each id decodes from. Added tokens hide the model's pieces.
std::vector<TokenizerParts::DecodeEntry> DecodeEntries(const TokenizerParts& parts) {
  int64_t limit = parts.model.id_limit();
  for (const AddedToken& token : parts.added_tokens.tokens()) limit = std::max<int64_t>(limit, token.id + 1);
  std::vector<TokenizerParts::DecodeEntry> entries(limit);
  const auto set = [&](int32_t id, std::string_view piece) {
    entries[id] = {true, parts.added_tokens.IsSpecialText(piece), parts.decoder.Prepare(piece)};
  };
  for (int32_t id = 0; id < parts.model.id_limit(); ++id) {
    if (const std::string* piece = parts.model.PieceOf(id)) set(id, *piece);
  }
  for (const AddedToken& token : parts.added_tokens.tokens()) set(token.id, token.normalized_content);
  return entries;
}

absl::StatusOr<std::unique_ptr<const TokenizerParts>> PartsFromJson(const JsonNode& root) {
  RETURN_IF_ERROR(root.HasOnlyKeys({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                                    "post_processor", "decoder", "model"}));
  const JsonNode version = root.Child("version");
  if (!version.is_null() && version.value() != "1.0")
    return version.NotSupported("another format version than \"1.0\"");
  ASSIGN_OR_RETURN(auto normalizer, Normalizer::FromJson(root.Child("normalizer")));
  ASSIGN_OR_RETURN(auto pre_tokenizer, PreTokenizer::FromJson(root.Child("pre_tokenizer")));
  ASSIGN_OR_RETURN(auto model, BpeModel::FromJson(root.Child("model"), pre_tokenizer.byte_level()));
  ASSIGN_OR_RETURN(auto added, AddedTokens::FromJson(root.Child("added_tokens"), model, normalizer.get()));
  ASSIGN_OR_RETURN(auto post_processor, PostProcessor::FromJson(root.Child("post_processor")));
  ASSIGN_OR_RETURN(auto decoder, DecoderChain::FromJson(root.Child("decoder")));
  auto parts = std::make_unique<TokenizerParts>(TokenizerParts{std::move(normalizer),
                                                               std::move(pre_tokenizer),
                                                               std::move(model),
                                                               std::move(added),
                                                               std::move(post_processor),
                                                               std::move(decoder),
                                                               {}});
  parts->decode_entries = DecodeEntries(*parts);
  return parts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Load(const std::filesystem::path& tokenizer_json) {
  const auto annotated = [&](const absl::Status& status) { return Annotate(status, tokenizer_json.string()); };
  const absl::StatusOr<std::string> text = ReadFile(tokenizer_json);
  if (!text.ok()) return annotated(text.status());
  const absl::StatusOr<nlohmann::json> json = ParseJson(*text);
  if (!json.ok()) return annotated(json.status());
  absl::StatusOr<std::unique_ptr<const TokenizerParts>> parts = PartsFromJson(JsonNode(&*json, ""));
  if (!parts.ok()) return annotated(parts.status());
  return std::unique_ptr<const Tokenizer>(new Tokenizer(*std::move(parts)));
}

}  // namespace sluice::engine
