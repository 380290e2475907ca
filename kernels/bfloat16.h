// bfloat16 as storage: the upper half of an IEEE fp32. Arithmetic is done in fp32; this type only converts.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice::kernels {

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;

  // Rounds to nearest, ties to even. NaN stays NaN (quiet), overflow becomes infinity.
  explicit BFloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
    const uint32_t quiet_nan = (word >> 16) | 0x40u;
    bits = static_cast<uint16_t>((word & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : rounded);
  }

  // Exact.
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

static_assert(sizeof(BFloat16) == 2);

}  // namespace sluice::kernels
