// Element types of tensors that kernels read and write.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::kernels {

// kFloat8: e4m3 without infinities (float8.h); of products alone.
enum class DType : uint8_t { kFloat32, kBFloat16, kInt32, kInt64, kFloat64, kInt16, kFloat8 };

// Bytes of one element.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kInt16:
      return 2;
    case DType::kInt64:
    case DType::kFloat64:
      return 8;
    case DType::kFloat8:
      return 1;
  }
  return 0;
}

constexpr std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kBFloat16:
      return "bf16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat64:
      return "fp64";
    case DType::kInt16:
      return "int16";
    case DType::kFloat8:
      return "fp8";
  }
  return "unknown";
}

constexpr bool IsFloating(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16; }

}  // namespace sluice::kernels
