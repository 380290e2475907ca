// Conversion of floating-point elements to and from fp32, on the CPU. Pure; thread-safe.
//
// bf16 is the upper half of fp32. f16 is IEEE 754 binary16. F8_E4M3 is the "FN" form (no infinities; 0x7F and 0xFF are
// NaN; largest 448), F8_E5M2 has infinities; both as in the OCP 8-bit floating point specification, 1.0. Narrowing
// rounds to nearest, ties to even; too large values become infinity; NaN stays a (quiet) NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/checkpoint/tensor_data.h"

namespace sluice::engine {

float Float32FromFloat8E4M3(uint8_t bits);
float Float32FromFloat8E5M2(uint8_t bits);

// Inline: position-independent code cannot inline an external function, and a loop of calls was ten times slower
// (bf16).
inline float Float32FromBFloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline float Float32FromFloat16(uint16_t bits) {
  // Moves the fields to their places in fp32, then corrects the exponent by a multiplication, which also normalises
  // subnormal numbers. Branch-free but for infinity and NaN.
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t fields = static_cast<uint32_t>(bits & 0x7FFF) << 13;
  const float scaled = std::bit_cast<float>(fields) * 0x1p112f;  // 2^(127 - 15)
  const bool special = (bits & 0x7C00) == 0x7C00;
  const uint32_t magnitude = special ? fields | 0x7F800000u : std::bit_cast<uint32_t>(scaled);
  return std::bit_cast<float>(sign | magnitude);
}

inline uint16_t BFloat16FromFloat32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((bits >> 16) | 0x0040);  // NaN, kept quiet
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline uint16_t Float16FromFloat32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7C00);  // 2^16 and above
  uint32_t half;
  if (magnitude < 0x38800000) {
    // Below 2^-14 the result is subnormal: adding 0.5 lets the fp32 adder round at the place of f16's last bit, 2^-24.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  } else {
    const uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
    half = (rounded >> 13) - (112u << 10);  // exponent bias 127 to 15; may carry into infinity, which is right
  }
  return static_cast<uint16_t>(sign | half);
}

// Converts `from` (elements of `dtype` at any alignment) into `to`. F64, F32, F16, BF16, F8_E4M3, F8_E5M2.
// InvalidArgument: another dtype, or from.size() is not to.size() elements.
absl::Status ConvertToFloat32(DataType dtype, std::span<const std::byte> from, std::span<float> to);

// Converts `from` into `to`, elements of `dtype`. F64, F32, F16, BF16. InvalidArgument as above.
absl::Status ConvertFromFloat32(std::span<const float> from, DataType dtype, std::span<std::byte> to);

}  // namespace sluice::engine
