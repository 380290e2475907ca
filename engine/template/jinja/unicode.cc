#include "engine/template/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "engine/template/jinja/special_casing.h"

namespace sluice::engine::jinja {
namespace {

constexpr int32_t kCapitalSigma = 0x3A3;
constexpr int32_t kSmallSigma = 0x3C3;
constexpr int32_t kFinalSigma = 0x3C2;
constexpr int32_t kCapitalIWithDot = 0x130;

const SpecialCasing* FindSpecialCasing(int32_t code_point) {
  if (code_point < kSpecialCasing[0].code_point) return nullptr;
  const auto* found = std::lower_bound(std::begin(kSpecialCasing), std::end(kSpecialCasing), code_point,
                                       [](const SpecialCasing& row, int32_t c) { return row.code_point < c; });
  return found != std::end(kSpecialCasing) && found->code_point == code_point ? found : nullptr;
}

bool IsCased(int32_t c) { return IsUpper(c) || IsLower(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_LT; }

bool IsCaseIgnorable(int32_t c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019;
  }
}

// Unicode's Final_Sigma: after a cased letter and not before one.
bool IsFinalSigma(const std::vector<int32_t>& text, size_t position) {
  size_t before = position;
  while (before > 0 && IsCaseIgnorable(text[before - 1])) --before;
  if (before == 0 || !IsCased(text[before - 1])) return false;
  size_t after = position + 1;
  while (after < text.size() && IsCaseIgnorable(text[after])) ++after;
  return after == text.size() || !IsCased(text[after]);
}

std::vector<int32_t> Decode(std::string_view text) {
  std::vector<int32_t> code_points;
  code_points.reserve(text.size());
  for (size_t i = 0; i < text.size();) code_points.push_back(NextCodePoint(text, &i));
  return code_points;
}

void AppendUpper(int32_t c, std::string* out) {
  if (const SpecialCasing* special = FindSpecialCasing(c); special != nullptr) {
    out->append(special->upper);
  } else {
    AppendCodePoint(utf8proc_toupper(c), out);
  }
}

void AppendTitle(int32_t c, std::string* out) {
  if (const SpecialCasing* special = FindSpecialCasing(c); special != nullptr) {
    out->append(special->title);
  } else {
    AppendCodePoint(utf8proc_totitle(c), out);
  }
}

void AppendLower(const std::vector<int32_t>& text, size_t position, std::string* out) {
  const int32_t c = text[position];
  if (c == kCapitalSigma) {
    AppendCodePoint(IsFinalSigma(text, position) ? kFinalSigma : kSmallSigma, out);
  } else if (c == kCapitalIWithDot) {
    out->append("i\xCC\x87");
  } else {
    AppendCodePoint(utf8proc_tolower(c), out);
  }
}

}  // namespace

// Bytes that are not UTF-8 are kept as negative numbers, so that they survive decoding and encoding.
int32_t NextCodePoint(std::string_view text, size_t* position) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + *position;
  if (*bytes < 0x80) {
    ++*position;
    return *bytes;
  }
  utf8proc_int32_t code_point = 0;
  const utf8proc_ssize_t size =
      utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - *position), &code_point);
  if (size <= 0) {
    ++*position;
    return -static_cast<int32_t>(*bytes);
  }
  *position += static_cast<size_t>(size);
  return code_point;
}

void AppendCodePoint(int32_t code_point, std::string* text) {
  if (code_point < 0) {
    text->push_back(static_cast<char>(-code_point));
    return;
  }
  if (code_point < 0x80) {
    text->push_back(static_cast<char>(code_point));
    return;
  }
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size = utf8proc_encode_char(code_point, bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

bool IsAscii(std::string_view text) {
  uint64_t high_bits = 0;
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    high_bits |= word;
  }
  for (; i < text.size(); ++i) high_bits |= static_cast<unsigned char>(text[i]);
  return (high_bits & 0x8080808080808080u) == 0;
}

size_t CodePointCount(std::string_view text) {
  if (IsAscii(text)) return text.size();
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) NextCodePoint(text, &i);
  return count;
}

std::vector<size_t> CodePointStarts(std::string_view text) {
  std::vector<size_t> starts;
  starts.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size();) {
    starts.push_back(i);
    NextCodePoint(text, &i);
  }
  starts.push_back(text.size());
  return starts;
}

bool IsSpace(int32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view Strip(std::string_view text, StripSide side, const std::string* characters) {
  const std::vector<int32_t> set = characters == nullptr ? std::vector<int32_t>() : Decode(*characters);
  const auto is_stripped = [&](int32_t c) {
    return characters == nullptr ? IsSpace(c) : std::find(set.begin(), set.end(), c) != set.end();
  };
  if (side != StripSide::kRight) {
    size_t begin = 0;
    while (begin < text.size()) {
      size_t next = begin;
      if (!is_stripped(NextCodePoint(text, &next))) break;
      begin = next;
    }
    text.remove_prefix(begin);
  }
  if (side == StripSide::kLeft) return text;
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    size_t end = begin;
    const int32_t c = NextCodePoint(text, &end);
    if (end != text.size() || !is_stripped(c)) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

std::string Upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const int32_t c : Decode(text)) AppendUpper(c, &out);
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const std::vector<int32_t> code_points = Decode(text);
  for (size_t i = 0; i < code_points.size(); ++i) AppendLower(code_points, i, &out);
  return out;
}

std::string Title(std::string_view text) {
  std::string out;
  bool after_cased = false;
  const std::vector<int32_t> code_points = Decode(text);
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (after_cased) {
      AppendLower(code_points, i, &out);
    } else {
      AppendTitle(code_points[i], &out);
    }
    after_cased = IsCased(code_points[i]);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  const std::vector<int32_t> code_points = Decode(text);
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (i == 0) {
      AppendTitle(code_points[i], &out);
    } else {
      AppendLower(code_points, i, &out);
    }
  }
  return out;
}

bool IsAlpha(int32_t c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool IsDecimal(int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_ND; }

bool IsUpper(int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_LU; }

bool IsLower(int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_LL; }

bool IsPrintable(int32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

}  // namespace sluice::engine::jinja
