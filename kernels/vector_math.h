// Elementary functions without branches or calls, for loops that the compiler turns into vector code.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice::kernels {

// e^x within 2 units in the last place for -87.3 <= x <= 88.3; 0 below, infinity above; NaN stays NaN.
// Method: x = n ln2 + r with |r| <= ln2 / 2, e^r by its series to the seventh power (error 2e-9), 2^n by the exponent
// bits.
inline float FastExp(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // nine bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float bounded = x > 88.3f ? 88.3f : (x < -87.3f ? -87.3f : x);
  const float shifted = bounded * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (bounded - n * kLn2High) - n * kLn2Low;
  float series = 1.0f / 5040.0f;
  series = series * r + 1.0f / 720.0f;
  series = series * r + 1.0f / 120.0f;
  series = series * r + 1.0f / 24.0f;
  series = series * r + 1.0f / 6.0f;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  // The low bits of `shifted` hold n: moved to the exponent they scale by 2^n.
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) << 23);
  const float result = std::bit_cast<float>(std::bit_cast<uint32_t>(series) + exponent);
  const float no_underflow = x < -87.3f ? 0.0f : result;
  return x > 88.3f ? __builtin_inff() : (x != x ? x : no_underflow);
}

inline float FastSigmoid(float x) { return 1.0f / (1.0f + FastExp(-x)); }

}  // namespace sluice::kernels
