// Classes of code points, as Hugging Face `tokenizers` sees them. Its parts take them from three libraries with three
// Unicode versions, so the table is recorded from the library itself (tools/oracle/tokenizer_char_classes.py).
#pragma once

#include <array>
#include <cstdint>

namespace sluice::engine {

enum CharClass : uint16_t {
  kLetter = 1 << 0,        // \p{L} of split patterns
  kNumber = 1 << 1,        // \p{N} of split patterns
  kSpace = 1 << 2,         // \s everywhere
  kNumeric = 1 << 3,       // the Digits pre-tokenizer
  kWord = 1 << 4,          // \w of the Whitespace pre-tokenizer and of single_word
  kPunctuation = 1 << 5,   // the Punctuation pre-tokenizer
  kNormBoundary = 1 << 6,  // under no normal form does it, or what it becomes, interact with the text before it
  kNfcStable = 1 << 7,     // kNormBoundary, and alone it is its own NFC
  kNormOpaque = 1 << 8,    // unknown to the library's normalisation: stays as it is and takes no mark
};

// A two-stage table: 4352 block numbers, then the distinct blocks of 256 code points.
class CharClassTable {
 public:
  static const CharClassTable& Get();

  // Bits of CharClass. REQUIRES: code_point < 0x110000.
  uint16_t operator[](uint32_t code_point) const { return blocks_[block_of_[code_point >> 8]][code_point & 0xFF]; }

 private:
  CharClassTable();

  static constexpr int kMaxBlocks = 512;
  std::array<uint16_t, 0x1100> block_of_;
  std::array<std::array<uint16_t, 256>, kMaxBlocks> blocks_;
};

inline bool HasClass(uint32_t code_point, uint16_t classes) {
  return (CharClassTable::Get()[code_point] & classes) != 0;
}

}  // namespace sluice::engine
