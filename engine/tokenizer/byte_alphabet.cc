#include "engine/tokenizer/byte_alphabet.h"

#include <array>

#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

struct Alphabet {
  std::array<uint32_t, 256> letter_of;
  std::array<int16_t, 0x180> byte_of;
};

const Alphabet& GetAlphabet() {
  static const Alphabet alphabet = [] {
    Alphabet result;
    result.byte_of.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const uint32_t letter = printable ? byte : next++;
      result.letter_of[byte] = letter;
      result.byte_of[letter] = static_cast<int16_t>(byte);
    }
    return result;
  }();
  return alphabet;
}

}  // namespace

std::string ByteLetter(uint8_t byte) {
  std::string letter;
  AppendUtf8(GetAlphabet().letter_of[byte], &letter);
  return letter;
}

std::optional<std::string> BytesOfLetters(std::string_view piece) {
  const Alphabet& alphabet = GetAlphabet();
  std::string bytes;
  for (size_t at = 0; at < piece.size();) {
    const DecodedChar c = DecodeChar(piece, at);
    if (c.code_point >= alphabet.byte_of.size() || alphabet.byte_of[c.code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet.byte_of[c.code_point]));
    at += c.length;
  }
  return bytes;
}

}  // namespace sluice::engine
