#include "engine/checkpoint/float_conversion.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace sluice::engine {
namespace {

// Any binary float of at most 16 bits with an exponent field above its mantissa field. `has_infinity` tells whether the
// largest exponent means infinity and NaN, or ordinary numbers but for one NaN (all ones).
float Float32FromSmallFloat(uint32_t bits, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const uint32_t sign = bits >> (exponent_bits + mantissa_bits);
  const uint32_t exponent = (bits >> mantissa_bits) & ((1u << exponent_bits) - 1);
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const bool top = exponent == (1u << exponent_bits) - 1;
  float magnitude;
  if (top && has_infinity) {
    magnitude = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else if (top && mantissa == (1u << mantissa_bits) - 1) {
    magnitude = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa | (1u << mantissa_bits)),
                           static_cast<int>(exponent) - bias - mantissa_bits);
  }
  return sign != 0 ? -magnitude : magnitude;
}

template <typename Element, typename Convert>
void Widen(std::span<const std::byte> from, std::span<float> to, Convert convert) {
  for (size_t i = 0; i < to.size(); ++i) {
    Element element;
    std::memcpy(&element, from.data() + i * sizeof(Element), sizeof(Element));
    to[i] = convert(element);
  }
}

// One-byte formats go through a table: the general conversion is too slow for each element.
template <typename Convert>
void WidenBytes(std::span<const std::byte> from, std::span<float> to, Convert convert) {
  std::array<float, 256> table;
  for (size_t bits = 0; bits < table.size(); ++bits) table[bits] = convert(static_cast<uint8_t>(bits));
  Widen<uint8_t>(from, to, [&](uint8_t bits) { return table[bits]; });
}

template <typename Element, typename Convert>
void Narrow(std::span<const float> from, std::span<std::byte> to, Convert convert) {
  for (size_t i = 0; i < from.size(); ++i) {
    const Element element = convert(from[i]);
    std::memcpy(to.data() + i * sizeof(Element), &element, sizeof(Element));
  }
}

absl::Status CheckSizes(DataType dtype, size_t bytes, size_t elements) {
  if (bytes == elements * static_cast<size_t>(ElementSize(dtype))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("conversion between ", bytes, " bytes of ", DataTypeName(dtype),
                                                 " and ", elements, " elements of F32"));
}

absl::Status NoConversion(DataType dtype) {
  return absl::InvalidArgumentError(absl::StrCat("no conversion between ", DataTypeName(dtype), " and F32"));
}

}  // namespace

float Float32FromBFloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float Float32FromFloat16(uint16_t bits) {
  // Moves the fields to their places in fp32, then corrects the exponent by a multiplication, which also normalises
  // subnormal numbers. Branch-free but for infinity and NaN.
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t fields = static_cast<uint32_t>(bits & 0x7FFF) << 13;
  const float scaled = std::bit_cast<float>(fields) * 0x1p112f;  // 2^(127 - 15)
  const bool special = (bits & 0x7C00) == 0x7C00;
  const uint32_t magnitude = special ? fields | 0x7F800000u : std::bit_cast<uint32_t>(scaled);
  return std::bit_cast<float>(sign | magnitude);
}

float Float32FromFloat8E4M3(uint8_t bits) { return Float32FromSmallFloat(bits, 4, 3, /*has_infinity=*/false); }

float Float32FromFloat8E5M2(uint8_t bits) { return Float32FromSmallFloat(bits, 5, 2, /*has_infinity=*/true); }

uint16_t BFloat16FromFloat32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((bits >> 16) | 0x0040);  // NaN, kept quiet
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

uint16_t Float16FromFloat32(float value) {
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

absl::Status ConvertToFloat32(DataType dtype, std::span<const std::byte> from, std::span<float> to) {
  if (absl::Status status = CheckSizes(dtype, from.size(), to.size()); !status.ok()) return status;
  switch (dtype) {
    case DataType::kF64:
      Widen<double>(from, to, [](double value) { return static_cast<float>(value); });
      return absl::OkStatus();
    case DataType::kF32:
      if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
      return absl::OkStatus();
    case DataType::kF16:
      Widen<uint16_t>(from, to, Float32FromFloat16);
      return absl::OkStatus();
    case DataType::kBF16:
      Widen<uint16_t>(from, to, Float32FromBFloat16);
      return absl::OkStatus();
    case DataType::kF8E4M3:
      WidenBytes(from, to, Float32FromFloat8E4M3);
      return absl::OkStatus();
    case DataType::kF8E5M2:
      WidenBytes(from, to, Float32FromFloat8E5M2);
      return absl::OkStatus();
    default:
      return NoConversion(dtype);
  }
}

absl::Status ConvertFromFloat32(std::span<const float> from, DataType dtype, std::span<std::byte> to) {
  if (absl::Status status = CheckSizes(dtype, to.size(), from.size()); !status.ok()) return status;
  switch (dtype) {
    case DataType::kF64:
      Narrow<double>(from, to, [](float value) { return static_cast<double>(value); });
      return absl::OkStatus();
    case DataType::kF32:
      if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
      return absl::OkStatus();
    case DataType::kF16:
      Narrow<uint16_t>(from, to, Float16FromFloat32);
      return absl::OkStatus();
    case DataType::kBF16:
      Narrow<uint16_t>(from, to, BFloat16FromFloat32);
      return absl::OkStatus();
    default:
      return NoConversion(dtype);
  }
}

}  // namespace sluice::engine
