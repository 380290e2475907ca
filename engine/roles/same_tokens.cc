#include "engine/roles/same_tokens.h"

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

std::string TokenText(const std::optional<std::string>& token) {
  return token.has_value() ? absl::StrCat("\"", *token, "\"") : "no token";
}

}  // namespace

absl::Status CheckSameTokens(const std::string& folder, const ModelConfig& config, const Tokenizer& trained) {
  RETURN_IF_ERROR(Annotate(CheckVocabularySize(config, trained.vocab_size()), folder));
  const std::string tokenizer_json = JoinPath(folder, "tokenizer.json");
  if (!PosixFileSystem().Stat(tokenizer_json).ok()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> other, Tokenizer::Load(tokenizer_json));
  for (int32_t id = 0; id < trained.vocab_size(); ++id) {
    const auto expected = trained.IdToToken(id), found = other->IdToToken(id);
    if (expected == found || !expected.has_value()) continue;
    return absl::InvalidArgumentError(absl::StrCat(folder, " has other tokens than the trained model: id ", id, " is ",
                                                   TokenText(found), " there and ", TokenText(expected), " here"));
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
