// CRC-32C (Castagnoli polynomial 0x1EDC6F41, reflected, initial value and final xor 0xFFFFFFFF: RFC 3720, appendix
// B.4), the checksum of our files on disk. It finds every burst of up to 32 wrong bits; it does not guard against
// intent. Thread-safe. Uses the CPU's instruction where there is one (x86-64 with SSE 4.2), tables elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

// The checksum of `bytes`, or with `before` = the checksum of what came before them, that of both together:
// Crc32c(b, Crc32c(a)) == Crc32c(a ++ b).
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

namespace crc32c_internal {
// The two ways, for tests.
uint32_t WithTables(std::span<const std::byte> bytes, uint32_t before);
}  // namespace crc32c_internal

}  // namespace sluice
