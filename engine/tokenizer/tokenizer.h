// Text to token ids and back, from a Hugging Face tokenizer.json: token by token what the `tokenizers` library gives.
//
// Supported: BPE models (byte-level, or characters with byte fallback), and the normalizers, pre-tokenizers, decoders
// and post-processors that normalizer.h, pre_tokenizer.h, decoder.h and post_processor.h list. Anything else in the
// file is an error that names its place. The file's `truncation` and `padding` are not applied: lengths are the
// caller's business.
//
// Order of work in Encode: added tokens in the raw text; normalisation of what is between them; added tokens that are
// to be found in normalised text; pre-tokenization; BPE.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace sluice::engine {

struct TokenizerParts;

struct EncodeOptions {
  bool add_special_tokens = false;  // what the post-processor puts around a text, such as a begin-of-text token
};

struct DecodeOptions {
  bool skip_special_tokens = false;
};

// Bytes [begin, end) of the text given to the tokenizer.
struct TextRange {
  int64_t begin;
  int64_t end;

  friend bool operator==(const TextRange&, const TextRange&) = default;
};

struct Encoding {
  std::vector<int32_t> ids;
  // One per id: the text that the token stands for, in whole characters. A character that several tokens spell is in
  // the range of each of them. White space that an added token swallowed is in its range. A mark that the tokenizer
  // puts in front has the range of the first character. Tokens of the post-processor have an empty range at 0 or at the
  // end.
  std::vector<TextRange> ranges;
};

// Immutable after Load; all methods may be called from any thread. Each thread keeps a word cache of 1 MiB.
class Tokenizer {
 public:
  // Reads a tokenizer.json. NotFound: no such file. InvalidArgument: not JSON (with the byte), not supported, or
  // inconsistent; the message starts with the file's path and names the place in it.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Load(const std::filesystem::path& tokenizer_json);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Invalid UTF-8 is read as U+FFFD, one for each maximal subpart (as Python's errors="replace").
  // REQUIRES: text.size() < 2^31.
  std::vector<int32_t> Encode(std::string_view text, EncodeOptions options = {}) const;
  Encoding EncodeWithOffsets(std::string_view text, EncodeOptions options = {}) const;

  // Always valid UTF-8. Ids that are no token give nothing.
  std::string Decode(absl::Span<const int32_t> ids, DecodeOptions options = {}) const;

  // Highest id + 1; ids below it that are no token count too. A model may have more embedding rows than this.
  int64_t vocab_size() const;

  // Tokens as the file spells them (byte-level pieces in letters: " the" is "Ġthe").
  std::optional<int32_t> TokenToId(std::string_view token) const;
  std::optional<std::string> IdToToken(int32_t id) const;

  // Whether the id is an added token with special = true.
  bool IsSpecial(int32_t id) const;

 private:
  friend class IncrementalDecoder;

  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);

  std::unique_ptr<const TokenizerParts> parts_;
};

// Decodes a sequence as it grows. The texts that Push and Flush return, joined, are Decode's text of all ids pushed,
// less Decode's text of the prompt. No text ends inside a character; what is not certain yet is held back. Not
// thread-safe. The tokenizer must outlive it.
class IncrementalDecoder {
 public:
  // `prompt_ids` come before the sequence and are not shown. If they end inside a character, the whole character is
  // shown once it is complete.
  explicit IncrementalDecoder(const Tokenizer& tokenizer, DecodeOptions options = {},
                              absl::Span<const int32_t> prompt_ids = {});
  ~IncrementalDecoder();
  IncrementalDecoder(IncrementalDecoder&&) noexcept;

  // The text that is certain now and was not returned before; may be empty.
  std::string Push(int32_t id);

  // The sequence has ended: returns what was held back. Push must not be called after it.
  std::string Flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::engine
