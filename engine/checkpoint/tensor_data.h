// A tensor outside of any framework: name, element type, shape and bytes. What files hold and what is written to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice::engine {

// Element types of safetensors files whose elements fill whole bytes, by the names the files use.
enum class DataType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
};

// "F32", "BF16", "F8_E4M3", ...
std::string DataTypeName(DataType dtype);
std::optional<DataType> DataTypeFromName(const std::string& name);

// Bytes of one element.
int64_t ElementSize(DataType dtype);

struct TensorSpec {
  std::string name;
  DataType dtype = DataType::kF32;
  std::vector<int64_t> shape;  // row-major, outermost first; empty for a scalar

  bool operator==(const TensorSpec&) const = default;
};

// Product of the shape; 1 for a scalar. None: a negative dimension, or a product beyond 64 bits.
std::optional<int64_t> ElementCount(const std::vector<int64_t>& shape);

// Elements times element size; none in the cases of ElementCount and where the bytes are beyond 64 bits.
std::optional<int64_t> ByteCount(const TensorSpec& spec);

// "[2, 3]", "[]".
std::string ShapeText(const std::vector<int64_t>& shape);

// A view: `bytes` (little-endian, row-major, dense) belongs to somebody else and must outlive the view. It may start at
// any address: read it with memcpy or by the functions of float_conversion.h, not through a cast pointer.
struct TensorData {
  TensorSpec spec;
  std::span<const std::byte> bytes;
};

}  // namespace sluice::engine
