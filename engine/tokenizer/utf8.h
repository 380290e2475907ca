// UTF-8 as the tokenizer sees it: scanning, decoding and the replacement of what is not UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::engine {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

struct DecodedChar {
  uint32_t code_point;
  uint32_t length;  // bytes, 1 to 4
};

// The character at text[position]. REQUIRES: text is valid UTF-8 and position is the start of a character.
inline DecodedChar DecodeChar(std::string_view text, size_t position) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + position;
  if (p[0] < 0x80) return {p[0], 1};
  if (p[0] < 0xE0) return {(p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu), 2};
  if (p[0] < 0xF0) return {(p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu), 3};
  return {(p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu), 4};
}

// Start of the character that ends at `position`. REQUIRES: valid UTF-8, position > 0.
inline size_t PreviousChar(std::string_view text, size_t position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  return position;
}

void AppendUtf8(uint32_t code_point, std::string* out);

enum class Utf8Scan { kValid, kInvalid, kIncomplete };

struct Utf8ScanResult {
  Utf8Scan kind;
  uint32_t length;  // kValid: the character; kInvalid: the maximal subpart (Unicode 15, section 3.9, D93b), at least 1;
                    // kIncomplete: what is left of the text, a proper prefix of a character
};

// What the bytes at text[position] are. REQUIRES: position < text.size().
Utf8ScanResult ScanUtf8(std::string_view text, size_t position);

// Length of the longest prefix that is whole, valid characters.
size_t ValidUtf8Prefix(std::string_view text);

}  // namespace sluice::engine
