#include "engine/template/jinja/string_literal.h"

#include <charconv>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

absl::StatusOr<int32_t> ReadHex(std::string_view text, size_t* position, size_t digits) {
  int32_t number = 0;
  if (*position + digits > text.size()) return TemplateError("a string escape has too few hexadecimal digits");
  const char* begin = text.data() + *position;
  const auto [end, error] = std::from_chars(begin, begin + digits, number, 16);
  if (error != std::errc() || end != begin + digits || *begin == '-') {
    return TemplateError("a string escape has too few hexadecimal digits");
  }
  if (number > 0x10FFFF) return TemplateError("a string escape is beyond U+10FFFF");
  *position += digits;
  return number;
}

int32_t ReadOctal(std::string_view text, size_t* position) {
  int32_t number = 0;
  for (int i = 0; i < 3 && *position < text.size() && text[*position] >= '0' && text[*position] <= '7'; ++i) {
    number = number * 8 + (text[(*position)++] - '0');
  }
  return number;
}

}  // namespace

absl::StatusOr<std::string> UnescapeStringLiteral(std::string_view text) {
  static constexpr std::string_view kEscapes = "\\'\"abfnrtv";
  static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i++]);
      continue;
    }
    const char escape = text[i + 1];
    if (escape >= '0' && escape <= '7') {
      ++i;
      AppendCodePoint(ReadOctal(text, &i), &out);
      continue;
    }
    i += 2;
    if (const size_t known = kEscapes.find(escape); known != std::string_view::npos) {
      out.push_back(kMeanings[known]);
    } else if (escape == 'x' || escape == 'u' || escape == 'U') {
      ASSIGN_OR_RETURN(int32_t code_point, ReadHex(text, &i, escape == 'x' ? 2 : escape == 'u' ? 4 : 8));
      if (code_point >= 0xD800 && code_point < 0xE000) code_point = 0xFFFD;  // half a pair has no UTF-8
      AppendCodePoint(code_point, &out);
    } else if (escape != '\n') {
      out.push_back('\\');
      out.push_back(escape);
    }
  }
  return out;
}

}  // namespace sluice::engine::jinja
