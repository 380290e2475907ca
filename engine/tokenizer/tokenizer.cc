#include "engine/tokenizer/tokenizer.h"

#include <algorithm>

#include "engine/tokenizer/tokenizer_parts.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

// The user's text as valid UTF-8, with source ranges if `track`.
struct SourceText {
  SourceText(std::string_view text, bool track) : view(text) {
    const size_t valid = ValidUtf8Prefix(text);
    if (valid < text.size()) repaired = std::string(text.substr(0, valid));
    if (track) {
      source.reserve(text.size());
      for (size_t at = 0; at < valid;) at += AddSource(at, DecodeChar(text, at).length, 0);
    }
    for (size_t at = valid; at < text.size();) {
      const Utf8ScanResult next = ScanUtf8(text, at);
      const std::string_view shown =
          next.kind == Utf8Scan::kValid ? text.substr(at, next.length) : kReplacementCharacter;
      repaired.append(shown);
      if (track) AddSource(at, next.length, shown.size());
      at += next.length;
    }
    if (valid < text.size()) view = repaired;
  }

  Piece piece() const { return {view, source.empty() ? nullptr : source.data(), true}; }

 private:
  size_t AddSource(size_t at, size_t length, size_t shown_length) {
    const SourceRange range = {static_cast<uint32_t>(at), static_cast<uint32_t>(at + length)};
    source.insert(source.end(), shown_length == 0 ? length : shown_length, range);
    return length;
  }

  std::string_view view;
  std::string repaired;
  std::vector<SourceRange> source;
};

// Runs the pipeline over one text.
class Encoder {
 public:
  Encoder(const TokenizerParts& parts, bool want_ranges) : parts_(parts), want_ranges_(want_ranges) {
    tokens_.want_lengths = want_ranges;
  }

  void Run(std::string_view text) {
    // Where a normalizer may remove the start of the text, only source ranges tell which piece begins it.
    const bool track = want_ranges_ || (parts_.normalizer != nullptr && parts_.pre_tokenizer.needs_source_start());
    const SourceText source(text, track);
    tokens_.ids.reserve(text.size() / 3 + 8);
    parts_.added_tokens.Split(
        AddedTokens::Pass::kRaw, source.piece(),
        [&](const AddedToken& token, const Piece& piece) { Add(token, piece); },
        [&](const Piece& rest) { Normalize(rest); });
  }

  std::vector<int32_t> TakeIds() { return std::move(tokens_.ids); }
  std::vector<TextRange> TakeRanges() { return std::move(ranges_); }

 private:
  void Normalize(const Piece& piece) {
    if (parts_.normalizer == nullptr) return FindNormalized(piece);
    parts_.normalizer->Normalize(piece, [&](const Piece& normalized) { FindNormalized(normalized); });
  }

  void FindNormalized(const Piece& piece) {
    if (!parts_.added_tokens.has_normalized()) return SplitWords(piece);
    parts_.added_tokens.Split(
        AddedTokens::Pass::kNormalized, piece, [&](const AddedToken& token, const Piece& found) { Add(token, found); },
        [&](const Piece& rest) { SplitWords(rest); });
  }

  void SplitWords(const Piece& piece) {
    parts_.pre_tokenizer.Split(piece, [&](const Piece& word) {
      parts_.model.Tokenize(word.text, &tokens_);
      if (want_ranges_) AddRanges(word);
    });
  }

  void Add(const AddedToken& token, const Piece& piece) {
    tokens_.ids.push_back(token.id);
    if (!want_ranges_) return;
    tokens_.lengths.push_back(0);
    ranges_.push_back(RangeOf(piece, 0, piece.text.size()));
  }

  // Ranges of the tokens that `word` has just become.
  void AddRanges(const Piece& word) {
    size_t begin = 0;
    for (size_t i = ranges_.size(); i < tokens_.ids.size(); ++i) {
      // A length may be off only where unknown characters and byte pieces mix; it never leads out of the word.
      const size_t end = std::min(begin + tokens_.lengths[i], word.text.size());
      ranges_.push_back(RangeOf(word, std::min(begin, end), end));
      begin = end;
    }
  }

  static TextRange RangeOf(const Piece& piece, size_t begin, size_t end) {
    if (begin < end) return {piece.source[begin].begin, piece.source[end - 1].end};
    const int64_t at = piece.text.empty() ? 0 : piece.source[std::min(begin, piece.text.size() - 1)].begin;
    return {at, at};
  }

  const TokenizerParts& parts_;
  bool want_ranges_;
  TokenBuffer tokens_;
  std::vector<TextRange> ranges_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  Encoder encoder(*parts_, /*want_ranges=*/false);
  encoder.Run(text);
  std::vector<int32_t> ids = encoder.TakeIds();
  if (options.add_special_tokens) {
    const PostProcessor& around = parts_->post_processor;
    ids.insert(ids.begin(), around.before.begin(), around.before.end());
    ids.insert(ids.end(), around.after.begin(), around.after.end());
  }
  return ids;
}

Encoding Tokenizer::EncodeWithOffsets(std::string_view text, EncodeOptions options) const {
  Encoder encoder(*parts_, /*want_ranges=*/true);
  encoder.Run(text);
  Encoding encoding{encoder.TakeIds(), encoder.TakeRanges()};
  if (options.add_special_tokens) {
    const PostProcessor& around = parts_->post_processor;
    const auto end = static_cast<int64_t>(text.size());
    encoding.ids.insert(encoding.ids.begin(), around.before.begin(), around.before.end());
    encoding.ranges.insert(encoding.ranges.begin(), around.before.size(), TextRange{0, 0});
    encoding.ids.insert(encoding.ids.end(), around.after.begin(), around.after.end());
    encoding.ranges.insert(encoding.ranges.end(), around.after.size(), TextRange{end, end});
  }
  return encoding;
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids, DecodeOptions options) const {
  DecodeRun run = parts_->decoder.Start();
  std::string text;
  for (const int32_t id : ids) parts_->Push(id, options, &run, &text);
  run.Flush(&text);
  return text;
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(parts_->decode_entries.size()); }

std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  if (const AddedToken* added = parts_->added_tokens.ByContent(token)) return added->id;
  return parts_->model.IdOf(token);
}

std::optional<std::string> Tokenizer::IdToToken(int32_t id) const {
  if (const AddedToken* added = parts_->added_tokens.ById(id)) return added->content;
  if (const std::string* piece = parts_->model.PieceOf(id)) return *piece;
  return std::nullopt;
}

bool Tokenizer::IsSpecial(int32_t id) const {
  const AddedToken* added = parts_->added_tokens.ById(id);
  return added != nullptr && added->special;
}

void TokenizerParts::Push(int32_t id, DecodeOptions options, DecodeRun* run, std::string* text) const {
  if (id < 0 || id >= static_cast<int64_t>(decode_entries.size())) return;
  const DecodeEntry& entry = decode_entries[id];
  if (!entry.used || (options.skip_special_tokens && entry.special_text)) return;
  run->Push(entry.piece, text);
}

struct IncrementalDecoder::State {
  const TokenizerParts* parts;
  DecodeOptions options;
  DecodeRun run;
};

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, DecodeOptions options,
                                       absl::Span<const int32_t> prompt_ids)
    : state_(new State{tokenizer.parts_.get(), options, tokenizer.parts_->decoder.Start()}) {
  std::string not_shown;
  for (const int32_t id : prompt_ids) state_->parts->Push(id, options, &state_->run, &not_shown);
}

IncrementalDecoder::~IncrementalDecoder() = default;
IncrementalDecoder::IncrementalDecoder(IncrementalDecoder&&) noexcept = default;

std::string IncrementalDecoder::Push(int32_t id) {
  std::string text;
  state_->parts->Push(id, state_->options, &state_->run, &text);
  return text;
}

std::string IncrementalDecoder::Flush() {
  std::string text;
  state_->run.Flush(&text);
  return text;
}

}  // namespace sluice::engine
