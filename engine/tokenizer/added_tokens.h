// The `added_tokens` of tokenizer.json: strings that are one token wherever they stand, found before the model sees the
// text.
//
// Tokens with normalized = false are looked for in the raw text. What lies between them is normalised, and there the
// tokens with normalized = true are looked for, in their own normalised form. Of the flags, lstrip and rstrip swallow
// the white space beside a match, and single_word drops a match that has a word character on either side.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/aligned_text.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/json_node.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/token_matcher.h"

namespace sluice::engine {

struct AddedToken {
  int32_t id;
  std::string content;
  std::string normalized_content;  // what is looked for, and what decoders get
  bool single_word;
  bool lstrip;
  bool rstrip;
  bool normalized;
  bool special;
};

// Immutable; const methods may be called from any thread.
class AddedTokens {
 public:
  // `normalizer` may be null. InvalidArgument, with the path: ids that are negative or given twice, tokens given twice,
  // and ids other than the ones that Hugging Face's library gives (the model's id for a piece of the model, else the
  // next free number): it would number them on its own and only warn.
  static absl::StatusOr<AddedTokens> FromJson(const JsonNode& node, const BpeModel& model,
                                              const Normalizer* normalizer);

  // Cuts the piece at the tokens: calls `token` for each token and `rest` for each other part that is not empty, in
  // order.
  enum class Pass { kRaw, kNormalized };
  void Split(Pass pass, const Piece& piece, absl::FunctionRef<void(const AddedToken&, const Piece&)> token,
             absl::FunctionRef<void(const Piece&)> rest) const;

  bool has_normalized() const { return !normalized_matcher_.empty(); }
  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* ById(int32_t id) const;
  const AddedToken* ByContent(std::string_view content) const;
  // Whether decoding may skip what shows as this text.
  bool IsSpecialText(std::string_view text) const;

 private:
  absl::Status Add(const JsonNode& node, const BpeModel& model, const Normalizer* normalizer, int32_t* next_id);

  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<int32_t, int32_t> index_by_id_;
  absl::flat_hash_map<std::string, int32_t> index_by_content_;
  absl::flat_hash_set<std::string> special_texts_;
  TokenMatcher raw_matcher_;  // values are indices into tokens_
  TokenMatcher normalized_matcher_;
};

}  // namespace sluice::engine
