// Eight-bit floating point e4m3 as storage: sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinities, the
// largest value is 448. Source: Micikevicius et al. 2022 (FP8 formats for deep learning), table 1. This type only
// converts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace sluice::kernels {

struct Float8 {
  static constexpr float kLargest = 448.0f;

  uint8_t bits = 0;

  Float8() = default;

  // Rounds to nearest, ties to even. What is larger than kLargest becomes kLargest; NaN stays NaN.
  explicit Float8(float value) {
    const uint8_t sign = std::signbit(value) ? 0x80 : 0;
    const float magnitude = std::fabs(value);
    if (std::isnan(value)) {
      bits = sign | 0x7F;
      return;
    }
    if (magnitude >= kLargest) {
      bits = sign | 0x7E;
      return;
    }
    // The spacing of values near this one: 2^-3 of its power of two, and not below that of the smallest ones.
    int exponent = 0;
    std::frexp(magnitude, &exponent);  // magnitude = [0.5, 1) * 2^exponent
    const int power = std::max(exponent - 1, -6);
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - power)));  // <= 16
    // A carry into the next power comes out right: mantissa 8 is exponent + 1.
    bits = sign | static_cast<uint8_t>(steps < 8 ? steps : (power + 7) * 8 + (steps - 8));
  }

  // Exact.
  explicit operator float() const {
    const int exponent = bits >> 3 & 0xF, mantissa = bits & 7;
    if ((bits & 0x7F) == 0x7F) return std::nanf("");
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                          : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    return (bits & 0x80) != 0 ? -magnitude : magnitude;
  }
};

static_assert(sizeof(Float8) == 1);

}  // namespace sluice::kernels
