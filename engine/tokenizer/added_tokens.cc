#include "engine/tokenizer/added_tokens.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/tokenizer/char_class.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

bool ClassBefore(std::string_view text, size_t position, CharClass wanted) {
  return position > 0 && HasClass(DecodeChar(text, PreviousChar(text, position)).code_point, wanted);
}

bool ClassAt(std::string_view text, size_t position, CharClass wanted) {
  return position < text.size() && HasClass(DecodeChar(text, position).code_point, wanted);
}

}  // namespace

absl::StatusOr<AddedTokens> AddedTokens::FromJson(const JsonNode& node, const BpeModel& model,
                                                  const Normalizer* normalizer) {
  AddedTokens result;
  if (node.is_null()) return result;
  ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, node.Elements());
  auto next_id = static_cast<int32_t>(model.piece_count());
  for (const JsonNode& element : elements) RETURN_IF_ERROR(result.Add(element, model, normalizer, &next_id));
  return result;
}

absl::Status AddedTokens::Add(const JsonNode& node, const BpeModel& model, const Normalizer* normalizer,
                              int32_t* next_id) {
  RETURN_IF_ERROR(node.HasOnlyKeys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  AddedToken token;
  ASSIGN_OR_RETURN(token.id, node.Child("id").AsId());
  ASSIGN_OR_RETURN(token.content, node.String("content"));
  ASSIGN_OR_RETURN(token.single_word, node.Bool("single_word"));
  ASSIGN_OR_RETURN(token.lstrip, node.Bool("lstrip"));
  ASSIGN_OR_RETURN(token.rstrip, node.Bool("rstrip"));
  ASSIGN_OR_RETURN(token.normalized, node.Bool("normalized"));
  ASSIGN_OR_RETURN(token.special, node.Bool("special"));
  if (token.content.empty()) return node.Child("content").Error("an empty token");
  const std::string shown = nlohmann::json(token.content).dump();
  const std::optional<int32_t> model_id = model.IdOf(token.content);
  const int32_t expected = model_id ? *model_id : (*next_id)++;
  if (token.id != expected) {
    return node.Child("id").Error(absl::StrCat(
        token.id, ", but ", shown,
        model_id ? " has this id in model.vocab: " : " is not in model.vocab and the next free id is ", expected));
  }
  if (!model_id && model.PieceOf(token.id) != nullptr) {
    return node.Child("id").Error(absl::StrCat(token.id, " is the id of another piece of model.vocab"));
  }
  const auto index = static_cast<int32_t>(tokens_.size());
  if (!index_by_id_.emplace(token.id, index).second)
    return node.Child("id").Error(absl::StrCat(token.id, " is given twice"));
  if (!index_by_content_.emplace(token.content, index).second) {
    return node.Child("content").Error(absl::StrCat(shown, " is given twice"));
  }
  token.normalized_content = token.content;
  if (token.normalized && normalizer != nullptr) {
    normalizer->Normalize({token.content, nullptr, true},
                          [&](const Piece& piece) { token.normalized_content = std::string(piece.text); });
    if (token.normalized_content.empty())
      return node.Child("content").Error(absl::StrCat(shown, " normalises to nothing"));
  }
  if (!(token.normalized ? normalized_matcher_ : raw_matcher_).Add(token.normalized_content, index)) {
    return node.Child("content").Error(absl::StrCat(shown, " normalises to the same text as an earlier token"));
  }
  if (token.special) special_texts_.insert(token.content);
  tokens_.push_back(std::move(token));
  return absl::OkStatus();
}

void AddedTokens::Split(Pass pass, const Piece& piece, absl::FunctionRef<void(const AddedToken&, const Piece&)> token,
                        absl::FunctionRef<void(const Piece&)> rest) const {
  const TokenMatcher& matcher = pass == Pass::kRaw ? raw_matcher_ : normalized_matcher_;
  const std::string_view text = piece.text;
  size_t covered = 0;
  TokenMatcher::Match match;
  for (size_t at = 0; !matcher.empty() && matcher.Find(text, at, &match); at = match.end) {
    const AddedToken& found = tokens_[match.value];
    size_t begin = match.begin;
    size_t end = match.end;
    if (found.single_word && (ClassBefore(text, begin, kWord) || ClassAt(text, end, kWord))) continue;
    while (found.lstrip && begin > covered && ClassBefore(text, begin, kSpace)) begin = PreviousChar(text, begin);
    // A token that starts with white space may have lost it to the token before; it still counts.
    if (found.lstrip && begin < covered) begin = std::min(covered, end);
    while (found.rstrip && ClassAt(text, end, kSpace)) end += DecodeChar(text, end).length;
    if (covered < begin) rest(piece.Sub(covered, begin));
    token(found, piece.Sub(begin, end));
    covered = end;
  }
  if (covered < text.size()) rest(piece.Sub(covered, text.size()));
}

const AddedToken* AddedTokens::ById(int32_t id) const {
  const auto it = index_by_id_.find(id);
  return it == index_by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::ByContent(std::string_view content) const {
  const auto it = index_by_content_.find(absl::string_view(content.data(), content.size()));
  return it == index_by_content_.end() ? nullptr : &tokens_[it->second];
}

bool AddedTokens::IsSpecialText(std::string_view text) const {
  return special_texts_.contains(absl::string_view(text.data(), text.size()));
}

}  // namespace sluice::engine
