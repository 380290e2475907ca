#include "common/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace sluice {
namespace {

constexpr uint32_t kReflectedPolynomial = 0x82F63B78;

// table[k][b]: the effect of byte b that is followed by k more bytes of a group of eight.
constexpr std::array<std::array<uint32_t, 256>, 8> MakeTables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kReflectedPolynomial : 0);
    tables[0][byte] = value;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (size_t k = 1; k < 8; ++k) {
      const uint32_t shorter = tables[k - 1][byte];
      tables[k][byte] = (shorter >> 8) ^ tables[0][shorter & 0xFF];
    }
  }
  return tables;
}
constexpr std::array<std::array<uint32_t, 256>, 8> kTables = MakeTables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t WithInstruction(std::span<const std::byte> bytes, uint32_t before) {
  uint64_t value = ~before;
  const std::byte* data = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, data += 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    value = _mm_crc32_u64(value, word);
  }
  uint32_t narrow = static_cast<uint32_t>(value);
  for (; left > 0; --left, ++data) narrow = _mm_crc32_u8(narrow, std::to_integer<uint8_t>(*data));
  return ~narrow;
}
#endif

}  // namespace

namespace crc32c_internal {

uint32_t WithTables(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t value = ~before;
  const std::byte* data = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, data += 8) {
    uint32_t next = 0;
    for (size_t i = 0; i < 8; ++i) {
      const uint32_t mixed = std::to_integer<uint32_t>(data[i]) ^ (i < 4 ? (value >> (8 * i)) & 0xFF : 0);
      next ^= kTables[7 - i][mixed];
    }
    value = next;
  }
  for (; left > 0; --left, ++data) value = (value >> 8) ^ kTables[0][(value ^ std::to_integer<uint32_t>(*data)) & 0xFF];
  return ~value;
}

}  // namespace crc32c_internal

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return WithInstruction(bytes, before);
#endif
  return crc32c_internal::WithTables(bytes, before);
}

}  // namespace sluice
