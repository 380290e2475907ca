#include "engine/template/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/string_literal.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

// Longest first, so that "==" is not read as "=" twice.
constexpr std::array<std::string_view, 27> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";", ""};

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), rest_(source_) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) RETURN_IF_ERROR(ReadTextAndTag());
    Emit(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::Status Error(std::string_view what) const {
    return TemplateError("chat template line ", std::to_string(line_), ": ", what);
  }

  void Emit(TokenType type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  bool StartsWith(std::string_view word) const { return rest_.substr(position_, word.size()) == word; }

  // Moves over `size` bytes and counts their lines.
  void Advance(size_t size) {
    const std::string_view passed = rest_.substr(position_, size);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    position_ += passed.size();
    if (!passed.empty()) line_starting_ = passed.back() == '\n';
  }

  size_t SpaceLengthAt(size_t position) const {
    return rest_.size() - position - Strip(rest_.substr(position), StripSide::kLeft).size();
  }

  // The first "{%", "{{" or "{#" from the current position; npos where there is none.
  size_t FindTag() const {
    for (size_t i = source_.find('{', position_); i != std::string::npos; i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() && (source_[i + 1] == '%' || source_[i + 1] == '{' || source_[i + 1] == '#')) return i;
    }
    return std::string::npos;
  }

  // The text before a tag, less what the tag's mark and lstrip_blocks take from it.
  std::string_view StripBeforeTag(std::string_view text, char mark, bool is_variable) const {
    if (mark == '-') return Strip(text, StripSide::kRight);
    if (mark == '+' || is_variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starting_) return text;
    return Strip(text.substr(line_begin), StripSide::kLeft).empty() ? text.substr(0, line_begin) : text;
  }

  absl::Status ReadTextAndTag() {
    const size_t tag = FindTag();
    if (tag == std::string::npos) {
      Emit(TokenType::kText, std::string(rest_.substr(position_)));
      Advance(source_.size() - position_);
      return absl::OkStatus();
    }
    const char kind = source_[tag + 1];
    const char mark = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const size_t tag_size = mark == '-' || mark == '+' ? 3 : 2;
    const std::string_view text = StripBeforeTag(rest_.substr(position_, tag - position_), mark, kind == '{');
    if (!text.empty()) Emit(TokenType::kText, std::string(text));
    Advance(tag - position_);
    const size_t raw_size = kind == '%' ? RawBeginSize(position_ + tag_size) : 0;
    Advance(tag_size);
    if (kind == '#') return SkipComment();
    if (raw_size > 0) {
      Advance(raw_size);
      return ReadRaw();
    }
    Emit(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, "");
    return ReadTag(kind == '{');
  }

  // "#}" ends a comment; a "-" before it takes white space, and without "+" one newline goes (trim_blocks).
  absl::Status SkipComment() {
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) return Error("a comment is not closed (expected '#}')");
    const char mark = end > position_ ? source_[end - 1] : '\0';
    Advance(end - position_);
    SkipTagEnd(mark, 2);
    return absl::OkStatus();
  }

  // Moves over a closing mark of `size` bytes that trims newlines, and over the white space that it takes.
  void SkipTagEnd(char mark, size_t size) {
    const size_t after = position_ + size;
    if (mark == '-') {
      size += SpaceLengthAt(after);
    } else if (mark != '+' && after < source_.size() && source_[after] == '\n') {
      size += 1;
    }
    Advance(size);
  }

  // The bytes of `raw %}` from `begin`, which is behind a "{%" with its mark; 0 where this is another tag.
  size_t RawBeginSize(size_t begin) const {
    size_t i = begin + SpaceLengthAt(begin);
    if (rest_.substr(i, 3) != "raw") return 0;
    i += 3;
    i += SpaceLengthAt(i);
    if (rest_.substr(i, 2) == "%}") return i + 2 - begin;
    if (rest_.substr(i, 3) != "-%}") return 0;
    return i + 3 + SpaceLengthAt(i + 3) - begin;
  }

  absl::Status ReadRaw() {
    for (size_t tag = source_.find("{%", position_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      size_t i = tag + 2;
      const char begin_mark = i < source_.size() ? source_[i] : '\0';
      if (begin_mark == '-' || begin_mark == '+') ++i;
      i += SpaceLengthAt(i);
      if (rest_.substr(i, 6) != "endraw") continue;
      i += 6;
      i += SpaceLengthAt(i);
      const char end_mark = i < source_.size() ? source_[i] : '\0';
      if (end_mark == '-' || end_mark == '+') ++i;
      if (rest_.substr(i, 2) != "%}") continue;
      const std::string_view text = StripBeforeTag(rest_.substr(position_, tag - position_), begin_mark, false);
      if (!text.empty()) Emit(TokenType::kText, std::string(text));
      Advance(i - position_);
      SkipTagEnd(end_mark, 2);
      return absl::OkStatus();
    }
    return Error("a raw block is not closed (expected '{% endraw %}')");
  }

  // The tokens inside {{ }} or {% %}, with the closing mark.
  absl::Status ReadTag(bool is_variable) {
    const std::string_view close = is_variable ? "}}" : "%}";
    std::string open_brackets;
    while (position_ < source_.size()) {
      if (open_brackets.empty()) {
        const char mark = StartsWith(Join("-", close)) ? '-' : StartsWith(Join("+", close)) ? '+' : '\0';
        const bool has_mark = mark == '-' || (mark == '+' && !is_variable);
        if (has_mark || StartsWith(close)) {
          Emit(is_variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, "");
          if (has_mark) Advance(1);
          // An expression's end takes no newline unless it is marked.
          SkipTagEnd(is_variable && !has_mark ? '+' : mark, 2);
          return absl::OkStatus();
        }
      }
      if (const size_t space = SpaceLengthAt(position_); space > 0) {
        Advance(space);
        continue;
      }
      RETURN_IF_ERROR(ReadToken(&open_brackets));
    }
    return Error(is_variable ? "an expression is not closed (expected '}}')" : "a tag is not closed (expected '%}')");
  }

  absl::Status ReadToken(std::string* open_brackets) {
    const char c = source_[position_];
    if (IsDigit(c)) return ReadNumber();
    if (c == '\'' || c == '"') return ReadString(c);
    size_t end = position_;
    while (end < source_.size()) {
      size_t next = end;
      const int32_t code_point = NextCodePoint(rest_, &next);
      if (code_point != '_' && !IsAlpha(code_point) && !IsDecimal(code_point)) break;
      end = next;
    }
    if (end > position_) {
      Emit(TokenType::kName, source_.substr(position_, end - position_));
      Advance(end - position_);
      return absl::OkStatus();
    }
    return ReadOperator(open_brackets);
  }

  absl::Status ReadOperator(std::string* open_brackets) {
    const auto* found = std::find_if(kOperators.begin(), kOperators.end(),
                                     [this](std::string_view candidate) { return StartsWith(candidate); });
    if (found->empty()) return Error(Join("unexpected character '", rest_.substr(position_, 1), "'"));
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') {
      open_brackets->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets->empty()) return Error(Join("unexpected '", *found, "'"));
      if (open_brackets->back() != c) {
        return Error(Join("unexpected '", *found, "', expected '", std::string(1, open_brackets->back()), "'"));
      }
      open_brackets->pop_back();
    }
    Emit(TokenType::kOperator, std::string(*found));
    Advance(found->size());
    return absl::OkStatus();
  }

  absl::Status ReadString(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Error("a string is not closed");
    const absl::StatusOr<std::string> text = UnescapeStringLiteral(rest_.substr(position_ + 1, end - position_ - 1));
    if (!text.ok()) return Error(Join(std::string(text.status().message())));
    Emit(TokenType::kString, *text);
    Advance(end + 1 - position_);
    return absl::OkStatus();
  }

  // Digits with single underscores between them, from `position`; returns the position behind.
  size_t SkipDigits(size_t position) const {
    while (position < source_.size() &&
           (IsDigit(source_[position]) ||
            (source_[position] == '_' && position + 1 < source_.size() && IsDigit(source_[position + 1])))) {
      ++position;
    }
    return position;
  }

  absl::Status ReadNumber() {
    if (source_[position_] == '0' && position_ + 1 < source_.size()) {
      const char base = static_cast<char>(source_[position_ + 1] | 0x20);
      if (base == 'x') return ReadBasedInteger(16);
      if (base == 'o') return ReadBasedInteger(8);
      if (base == 'b') return ReadBasedInteger(2);
    }
    size_t end = SkipDigits(position_);
    bool is_float = false;
    if (end + 1 < source_.size() && source_[end] == '.' && IsDigit(source_[end + 1])) {
      is_float = true;
      end = SkipDigits(end + 1);
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '-' || source_[end + 1] == '+');
      if (end + 1 + sign < source_.size() && IsDigit(source_[end + 1 + sign])) {
        is_float = true;
        end = SkipDigits(end + 1 + sign);
      }
    }
    std::string digits = source_.substr(position_, end - position_);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    Emit(is_float ? TokenType::kFloat : TokenType::kInteger, std::move(digits));
    Advance(end - position_);
    return absl::OkStatus();
  }

  absl::Status ReadBasedInteger(int base) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    uint64_t number = 0;
    size_t end = position_ + 2;
    for (; end < source_.size(); ++end) {
      if (source_[end] == '_') continue;
      const char c = IsDigit(source_[end]) ? source_[end] : static_cast<char>(source_[end] | 0x20);
      const size_t digit = kDigits.find(c);
      if (digit >= static_cast<size_t>(base)) break;
      if (number >> 58 != 0) return Error("an integer is too large");
      number = number * static_cast<uint64_t>(base) + digit;
    }
    Emit(TokenType::kInteger, std::to_string(number));
    Advance(end - position_);
    return absl::OkStatus();
  }

  const std::string source_;
  const std::string_view rest_;  // all of source_
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // what was passed last ended a line, so what follows is at the start of one
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(NormalizeNewlines(source)).Run(); }

}  // namespace sluice::engine::jinja
