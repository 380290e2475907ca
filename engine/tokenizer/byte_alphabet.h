// The letters that byte-level vocabularies write bytes with (GPT-2's bytes_to_unicode): the printable bytes of Latin-1
// stand for themselves, the other 68 are U+0100, U+0101, ... in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::engine {

// The letter of a byte, as UTF-8.
std::string ByteLetter(uint8_t byte);

// The bytes that a piece spells, if all its characters are byte letters. REQUIRES: valid UTF-8.
std::optional<std::string> BytesOfLetters(std::string_view piece);

}  // namespace sluice::engine
