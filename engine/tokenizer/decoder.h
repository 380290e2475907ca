// The `decoder` of tokenizer.json: ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, Sequence; none joins the
// pieces with spaces. It turns the pieces of tokens back into text, piece by piece: what Decode gives for a whole
// sequence and what a stream shows come from the same code.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/json_node.h"

namespace sluice::engine {

// One step at work on one sequence. Not thread-safe.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;

  // Takes the next piece, or the next part of the one string that an earlier step fused the pieces into.
  virtual void Push(std::string_view piece) = 0;
  // The sequence ends: passes on what was held back. Called once, last.
  virtual void Flush() = 0;
};

// The chain at work on one sequence. Text that may still change is held back: bytes of an unfinished character, a run
// of byte pieces that goes on, trailing characters that a Strip may drop.
class DecodeRun {
 public:
  // `piece` must be prepared by DecoderChain::Prepare. Appends to `out` the text that is certain now.
  void Push(std::string_view piece, std::string* out);
  void Flush(std::string* out);

 private:
  friend class DecoderChain;
  class Output;

  std::vector<std::unique_ptr<DecodeStage>> stages_;  // each passes on to the one before it in this list
  std::unique_ptr<std::string> text_ = std::make_unique<std::string>();
};

// Immutable; const methods may be called from any thread.
class DecoderChain {
 public:
  // InvalidArgument, with the path, for a kind or an option that is not supported.
  static absl::StatusOr<DecoderChain> FromJson(const JsonNode& node);

  // The form of a piece that DecodeRun takes: byte-level pieces become bytes here, once, instead of at each use.
  std::string Prepare(std::string_view piece) const;

  DecodeRun Start() const;

 private:
  using MakeStage = std::function<std::unique_ptr<DecodeStage>(DecodeStage* next)>;
  struct Build;

  std::vector<MakeStage> steps_;
  bool starts_with_byte_level_ = false;
};

}  // namespace sluice::engine
