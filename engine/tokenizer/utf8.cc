#include "engine/tokenizer/utf8.h"

#include <cstring>

namespace sluice::engine {

void AppendUtf8(uint32_t code_point, std::string* out) {
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code_point >> 6));
    out->push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code_point >> 12));
    out->push_back(static_cast<char>(0x80 | (code_point >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | code_point >> 18));
    out->push_back(static_cast<char>(0x80 | (code_point >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code_point >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  }
}

Utf8ScanResult ScanUtf8(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(position);
  if (lead < 0x80) return {Utf8Scan::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Scan::kInvalid, 1};
  const uint32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF (Unicode 15, table 3-7).
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (uint32_t i = 1; i < length; ++i) {
    if (position + i == text.size()) return {Utf8Scan::kIncomplete, i};
    if (byte(position + i) < low || byte(position + i) > high) return {Utf8Scan::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Scan::kValid, length};
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    uint64_t eight;
    if (text.size() - position >= sizeof eight) {
      std::memcpy(&eight, text.data() + position, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        position += sizeof eight;
        continue;
      }
    }
    const Utf8ScanResult next = ScanUtf8(text, position);
    if (next.kind != Utf8Scan::kValid) break;
    position += next.length;
  }
  return position;
}

}  // namespace sluice::engine
