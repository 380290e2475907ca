#include "engine/tokenizer/split_rules.h"

#include <array>
#include <cstdint>

#include "engine/tokenizer/char_class.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {

const std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::optional<SplitRule> SplitRuleFor(std::string_view expression) {
  if (expression == kGpt2Expression) return SplitRule::kGpt2;
  if (expression == kQwen2Expression) return SplitRule::kQwen2;
  if (expression == kLlama3Expression) return SplitRule::kLlama3;
  return std::nullopt;
}

namespace {

constexpr uint16_t kOther = 0;
constexpr uint16_t kSplitClasses = kLetter | kNumber | kSpace;

const std::array<uint16_t, 128>& AsciiClasses() {
  static const std::array<uint16_t, 128> classes = [] {
    std::array<uint16_t, 128> result;
    for (uint32_t c = 0; c < result.size(); ++c) result[c] = CharClassTable::Get()[c] & kSplitClasses;
    return result;
  }();
  return classes;
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool AtEnd(size_t at) const { return at == text_.size(); }
  char Byte(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  bool IsNewline(size_t at) const { return at < text_.size() && (text_[at] == '\n' || text_[at] == '\r'); }

  // The class of the character at `at` and its length. REQUIRES: !AtEnd(at).
  struct Char {
    uint16_t char_class;  // kLetter, kNumber, kSpace or kOther
    uint32_t length;
  };
  Char At(size_t at) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return {ascii_[byte], 1};
    const DecodedChar decoded = DecodeChar(text_, at);
    return {static_cast<uint16_t>(table_[decoded.code_point] & kSplitClasses), decoded.length};
  }
  bool Is(size_t at, uint16_t char_class) const { return !AtEnd(at) && At(at).char_class == char_class; }

  // The end of the run of `char_class` that starts at `at`, of at most `limit` characters.
  size_t RunEnd(size_t at, uint16_t char_class, int limit = INT32_MAX) const {
    for (; limit > 0 && !AtEnd(at); --limit) {
      const Char c = At(at);
      if (c.char_class != char_class) break;
      at += c.length;
    }
    return at;
  }
  size_t NewlinesEnd(size_t at) const {
    while (IsNewline(at)) ++at;
    return at;
  }

  // 's|'t|'re|'ve|'m|'ll|'d at `at`, or 0. Caseless matching is Unicode's: U+017F (long s) is an s.
  size_t ContractionEnd(size_t at, bool caseless) const {
    if (Byte(at) != '\'') return 0;
    const auto lower = [&](char c) { return caseless && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    const char first = lower(Byte(at + 1));
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if (caseless && text_.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
    const char second = lower(Byte(at + 2));
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
      return at + 3;
    return 0;
  }

  // \s+(?!\S)|\s+ at a space: all of the run at the end of the text, else all but its last character, which goes with
  // what follows; a lone space stays.
  size_t SpacesEnd(size_t at) const {
    const size_t end = RunEnd(at, kSpace);
    if (AtEnd(end)) return end;
    const size_t last = PreviousChar(text_, end);
    return last == at ? end : last;
  }

  // \s*[\r\n]+ at a space: up to the last line end of the run, or 0.
  size_t LineEndsEnd(size_t at) const {
    size_t end = 0;
    while (Is(at, kSpace)) {
      const bool newline = IsNewline(at);
      at += At(at).length;
      if (newline) end = at;
    }
    return end;
  }

  size_t Gpt2End(size_t at) const {
    if (const size_t end = ContractionEnd(at, /*caseless=*/false)) return end;
    Char c = At(at);
    size_t start = at;
    if (text_[at] == ' ' && !AtEnd(at + 1)) {
      start = at + 1;
      c = At(start);
    }
    return c.char_class == kSpace ? SpacesEnd(at) : RunEnd(start, c.char_class);
  }

  size_t Cl100kEnd(size_t at, int max_digits) const {
    if (const size_t end = ContractionEnd(at, /*caseless=*/true)) return end;
    const Char c = At(at);
    if (c.char_class == kLetter) return RunEnd(at, kLetter);
    if (c.char_class == kNumber) return RunEnd(at, kNumber, max_digits);
    if (!IsNewline(at) && Is(at + c.length, kLetter)) return RunEnd(at + c.length, kLetter);
    const size_t start = text_[at] == ' ' ? at + 1 : at;
    if (Is(start, kOther)) return NewlinesEnd(RunEnd(start, kOther));
    if (const size_t end = LineEndsEnd(at)) return end;
    return SpacesEnd(at);
  }

 private:
  std::string_view text_;
  const CharClassTable& table_ = CharClassTable::Get();
  const std::array<uint16_t, 128>& ascii_ = AsciiClasses();
};

}  // namespace

void ForEachPiece(SplitRule rule, std::string_view text, absl::FunctionRef<void(size_t, size_t)> piece) {
  const Scanner scanner(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end =
        rule == SplitRule::kGpt2 ? scanner.Gpt2End(at) : scanner.Cl100kEnd(at, rule == SplitRule::kQwen2 ? 1 : 3);
    piece(at, end);
    at = end;
  }
}

}  // namespace sluice::engine
