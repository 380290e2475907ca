// The `pre_tokenizer` of tokenizer.json: ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation,
// Sequence. It cuts normalised text into the words that the model then cuts into tokens.
//
// ByteLevel's mapping of bytes to letters is not done here: the model of a byte-level tokenizer holds its pieces as raw
// bytes instead (bpe_model.h). Hence ByteLevel must be the last step of a Sequence.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/aligned_text.h"
#include "engine/tokenizer/json_node.h"

namespace sluice::engine {

// One step. Immutable; const methods may be called from any thread.
class SplitStep {
 public:
  virtual ~SplitStep() = default;

  // Calls `word` for each word of the piece, in order; empty ones are left to the caller to drop. A word is valid
  // during the call only.
  virtual void Split(const Piece& piece, absl::FunctionRef<void(const Piece&)> word) const = 0;
};

class PreTokenizer {
 public:
  // No steps for a null node. InvalidArgument, with the path, for a kind or an option that is not supported.
  static absl::StatusOr<PreTokenizer> FromJson(const JsonNode& node);

  // Calls `word` for each word that is not empty.
  void Split(const Piece& piece, absl::FunctionRef<void(const Piece&)> word) const { From(0, piece, word); }

  // The words are to be read as bytes, not as characters.
  bool byte_level() const { return byte_level_; }
  // Some step asks whether a piece begins where the user's text begins.
  bool needs_source_start() const { return needs_source_start_; }

 private:
  void From(size_t step, const Piece& piece, absl::FunctionRef<void(const Piece&)> word) const;
  absl::Status Add(const JsonNode& node);

  std::vector<std::unique_ptr<const SplitStep>> steps_;
  bool byte_level_ = false;
  bool needs_source_start_ = false;
};

}  // namespace sluice::engine
