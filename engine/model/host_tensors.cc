#include "engine/model/host_tensors.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/float_conversion.h"

namespace sluice::engine {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;
using kernels::TensorView;

std::vector<int64_t> Dimensions(const Shape& shape) {
  std::vector<int64_t> dimensions;
  for (int axis = 0; axis < shape.rank(); ++axis) dimensions.push_back(shape[axis]);
  return dimensions;
}

// The tensor's shape is the parameter's; the embedding has its own sentence, because there the cause is known.
absl::Status CheckShape(const ParameterSpec& spec, const TensorSpec& found) {
  const std::vector<int64_t> wanted = Dimensions(spec.shape);
  if (found.shape == wanted) return absl::OkStatus();
  if (spec.name == "model.embed_tokens.weight" && found.shape.size() == 2 && found.shape[1] == wanted[1]) {
    return absl::InvalidArgumentError(
        absl::StrCat(found.name, " has ", found.shape[0], " rows, vocab_size is ", wanted[0]));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(found.name, " is ", ShapeText(found.shape), ", config needs ", ShapeText(wanted)));
}

// In pieces, so that the fp32 copy of a large bf16 tensor stays small.
absl::Status CopyConverted(const TensorData& from, TensorView to) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  const int64_t element_size = ElementSize(from.spec.dtype);
  const TensorView flat = to.Reshaped({to.elements()});
  std::vector<float> piece;
  for (int64_t begin = 0; begin < to.elements(); begin += kPiece) {
    const int64_t end = std::min(begin + kPiece, to.elements());
    piece.resize(static_cast<size_t>(end - begin));
    RETURN_IF_ERROR(ConvertToFloat32(from.spec.dtype,
                                     from.bytes.subspan(static_cast<size_t>(begin * element_size),
                                                        static_cast<size_t>((end - begin) * element_size)),
                                     piece));
    RETURN_IF_ERROR(CopyTensor(ConstTensorView(piece.data(), {end - begin}), flat.Rows(begin, end)));
  }
  return absl::OkStatus();
}

absl::Status CopyFromHost(const TensorData& from, TensorView to) {
  const bool same_type = (from.spec.dtype == DataType::kF32 && to.dtype == DType::kFloat32) ||
                         (from.spec.dtype == DataType::kBF16 && to.dtype == DType::kBFloat16);
  if (same_type && static_cast<int64_t>(from.bytes.size()) == to.bytes()) {
    if (to.device.is_cpu()) {
      std::memcpy(to.data, from.bytes.data(), from.bytes.size());
      return absl::OkStatus();
    }
    return CopyTensor(ConstTensorView(from.bytes.data(), to.dtype, to.shape, kernels::Device::Cpu()), to);
  }
  return Annotate(CopyConverted(from, to), from.spec.name);
}

}  // namespace

absl::StatusOr<HostTensors> ExportFlat(const ParameterLayout& layout, ConstTensorView flat, DType dtype,
                                       const std::string& prefix) {
  HostTensors result;
  ConstTensorView host = flat;
  if (!flat.device.is_cpu() || flat.dtype != dtype) {
    ASSIGN_OR_RETURN(result.storage,
                     DeviceMemory::Allocate(flat.elements() * kernels::SizeOf(dtype), kernels::Device::Cpu()));
    const TensorView copy = result.storage.View(0, dtype, {flat.elements()});
    RETURN_IF_ERROR(CopyTensor(flat, copy));
    host = copy;
  }
  for (const ParameterSpec& spec : layout.parameters()) {
    const ConstTensorView slice = host.Rows(spec.offset, spec.offset + spec.shape.elements());
    result.tensors.push_back(
        {{prefix + spec.name, dtype == DType::kBFloat16 ? DataType::kBF16 : DataType::kF32, Dimensions(spec.shape)},
         {static_cast<const std::byte*>(slice.data), static_cast<size_t>(slice.bytes())}});
  }
  return result;
}

absl::Status ImportFlat(const ParameterLayout& layout, std::span<const TensorData> tensors, TensorView flat,
                        const std::string& prefix) {
  std::unordered_map<std::string, const TensorData*> by_name;
  for (const TensorData& tensor : tensors) by_name[tensor.spec.name] = &tensor;

  // All names and shapes first: a folder that does not fit is refused before its bytes are read.
  std::vector<std::string> missing;
  for (const ParameterSpec& spec : layout.parameters()) {
    const auto it = by_name.find(prefix + spec.name);
    if (it == by_name.end()) {
      missing.push_back(prefix + spec.name);
      continue;
    }
    RETURN_IF_ERROR(CheckShape(spec, it->second->spec));
  }
  if (!missing.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(missing.front(), " is missing",
                     missing.size() > 1 ? absl::StrCat(", and ", missing.size() - 1, " more tensors") : ""));
  }
  for (const ParameterSpec& spec : layout.parameters()) {
    const TensorView slice = flat.Rows(spec.offset, spec.offset + spec.shape.elements());
    RETURN_IF_ERROR(CopyFromHost(*by_name.at(prefix + spec.name), slice));
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
