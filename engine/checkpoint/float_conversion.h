// Conversion of floating-point elements to and from fp32, on the CPU. Pure; thread-safe.
//
// bf16 is the upper half of fp32. f16 is IEEE 754 binary16. F8_E4M3 is the "FN" form (no infinities; 0x7F and 0xFF are
// NaN; largest 448), F8_E5M2 has infinities; both as in the OCP 8-bit floating point specification, 1.0. Narrowing
// rounds to nearest, ties to even; too large values become infinity; NaN stays a (quiet) NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/checkpoint/tensor_data.h"

namespace sluice::engine {

float Float32FromBFloat16(uint16_t bits);
float Float32FromFloat16(uint16_t bits);
float Float32FromFloat8E4M3(uint8_t bits);
float Float32FromFloat8E5M2(uint8_t bits);
uint16_t BFloat16FromFloat32(float value);
uint16_t Float16FromFloat32(float value);

// Converts `from` (elements of `dtype` at any alignment) into `to`. F64, F32, F16, BF16, F8_E4M3, F8_E5M2.
// InvalidArgument: another dtype, or from.size() is not to.size() elements.
absl::Status ConvertToFloat32(DataType dtype, std::span<const std::byte> from, std::span<float> to);

// Converts `from` into `to`, elements of `dtype`. F64, F32, F16, BF16. InvalidArgument as above.
absl::Status ConvertFromFloat32(std::span<const float> from, DataType dtype, std::span<std::byte> to);

}  // namespace sluice::engine
