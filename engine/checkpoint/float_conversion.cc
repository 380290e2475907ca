#include "engine/checkpoint/float_conversion.h"

#include <array>
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

// Plain pointers: the compiler vectorises these loops when nothing else can change under them.
template <typename Element, typename Convert>
void Widen(std::span<const std::byte> from, std::span<float> to, Convert convert) {
  const std::byte* __restrict source = from.data();
  float* __restrict target = to.data();
  const size_t count = to.size();
  for (size_t i = 0; i < count; ++i) {
    Element element;
    std::memcpy(&element, source + i * sizeof(Element), sizeof(Element));
    target[i] = convert(element);
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
  const float* __restrict source = from.data();
  std::byte* __restrict target = to.data();
  const size_t count = from.size();
  for (size_t i = 0; i < count; ++i) {
    const Element element = convert(source[i]);
    std::memcpy(target + i * sizeof(Element), &element, sizeof(Element));
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

float Float32FromFloat8E4M3(uint8_t bits) { return Float32FromSmallFloat(bits, 4, 3, /*has_infinity=*/false); }

float Float32FromFloat8E5M2(uint8_t bits) { return Float32FromSmallFloat(bits, 5, 2, /*has_infinity=*/true); }

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
      Widen<uint16_t>(from, to, [](uint16_t bits) { return Float32FromFloat16(bits); });
      return absl::OkStatus();
    case DataType::kBF16:
      Widen<uint16_t>(from, to, [](uint16_t bits) { return Float32FromBFloat16(bits); });
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
      Narrow<uint16_t>(from, to, [](float value) { return Float16FromFloat32(value); });
      return absl::OkStatus();
    case DataType::kBF16:
      Narrow<uint16_t>(from, to, [](float value) { return BFloat16FromFloat32(value); });
      return absl::OkStatus();
    default:
      return NoConversion(dtype);
  }
}

}  // namespace sluice::engine
