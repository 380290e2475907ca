#include "kernels/aten_view.h"

#include <ATen/ops/from_blob.h>

#include <array>

namespace sluice::kernels {

c10::ScalarType ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kInt16:
      return at::kShort;
    case DType::kFloat8:
      return at::kFloat8_e4m3fn;
  }
  return at::kFloat;
}

at::Tensor AsTensor(TensorView view) {
  const int rank = view.shape.rank();
  std::array<int64_t, Shape::kMaxRank> sizes;
  std::array<int64_t, Shape::kMaxRank> strides;
  int64_t dense = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    const auto i = static_cast<size_t>(axis);
    sizes[i] = view.dim(axis);
    strides[i] = axis == 0 ? view.row_stride : dense;
    dense *= sizes[i];
  }
  const c10::Device device = view.device.is_cpu() ? c10::Device(at::kCPU) : c10::Device(at::kCUDA, view.device.index);
  const auto options = at::TensorOptions().dtype(ScalarTypeOf(view.dtype)).device(device);
  const auto count = static_cast<size_t>(rank);
  // Named, so that LibTorch does not ask the driver where the pointer lives.
  return at::for_blob(view.data, at::IntArrayRef(sizes.data(), count))
      .strides(at::IntArrayRef(strides.data(), count))
      .options(options)
      .target_device(device)
      .make_tensor();
}

at::Tensor AsTensor(ConstTensorView view) {
  TensorView writable;
  writable.data = const_cast<void*>(view.data);
  writable.dtype = view.dtype;
  writable.shape = view.shape;
  writable.device = view.device;
  writable.row_stride = view.row_stride;
  return AsTensor(writable);
}

}  // namespace sluice::kernels
