// The `normalizer` of tokenizer.json: NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip, Sequence.
#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/aligned_text.h"
#include "engine/tokenizer/json_node.h"

namespace sluice::engine {

// Immutable; const methods may be called from any thread.
class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // Null for a null node. InvalidArgument, with the path, for a kind or an option that is not supported.
  static absl::StatusOr<std::unique_ptr<const Normalizer>> FromJson(const JsonNode& node);

  // Calls `done` once, with the normalised text; it is valid during the call only. The text may be the piece itself.
  virtual void Normalize(const Piece& piece, absl::FunctionRef<void(const Piece&)> done) const = 0;
};

}  // namespace sluice::engine
