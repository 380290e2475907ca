#include "engine/checkpoint/tensor_data.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::engine {
namespace {

struct DataTypeRow {
  DataType dtype;
  const char* name;
  int64_t size;
};

constexpr std::array<DataTypeRow, 16> kDataTypes = {{
    {DataType::kF64, "F64", 8},
    {DataType::kF32, "F32", 4},
    {DataType::kF16, "F16", 2},
    {DataType::kBF16, "BF16", 2},
    {DataType::kI64, "I64", 8},
    {DataType::kI32, "I32", 4},
    {DataType::kI16, "I16", 2},
    {DataType::kI8, "I8", 1},
    {DataType::kU64, "U64", 8},
    {DataType::kU32, "U32", 4},
    {DataType::kU16, "U16", 2},
    {DataType::kU8, "U8", 1},
    {DataType::kBool, "BOOL", 1},
    {DataType::kF8E4M3, "F8_E4M3", 1},
    {DataType::kF8E5M2, "F8_E5M2", 1},
    {DataType::kF8E8M0, "F8_E8M0", 1},
}};

const DataTypeRow& Row(DataType dtype) { return kDataTypes[static_cast<size_t>(dtype)]; }

constexpr bool RowsFollowTheEnum() {
  for (size_t i = 0; i < kDataTypes.size(); ++i) {
    if (kDataTypes[i].dtype != static_cast<DataType>(i)) return false;
  }
  return true;
}
static_assert(RowsFollowTheEnum());

}  // namespace

std::string DataTypeName(DataType dtype) { return Row(dtype).name; }

std::optional<DataType> DataTypeFromName(const std::string& name) {
  for (const DataTypeRow& row : kDataTypes) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

int64_t ElementSize(DataType dtype) { return Row(dtype).size; }

std::optional<int64_t> ElementCount(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  bool overflow = false;
  bool empty = false;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    if (dimension == 0) empty = true;
    if (dimension != 0 && __builtin_mul_overflow(count, dimension, &count)) overflow = true;
  }
  if (overflow) return std::nullopt;
  return empty ? 0 : count;
}

std::optional<int64_t> ByteCount(const TensorSpec& spec) {
  const std::optional<int64_t> count = ElementCount(spec.shape);
  int64_t bytes = 0;
  if (!count.has_value() || __builtin_mul_overflow(*count, ElementSize(spec.dtype), &bytes)) return std::nullopt;
  return bytes;
}

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

}  // namespace sluice::engine
