// Pointers with a shape: how kernels take their tensors. A view owns nothing and costs nothing to copy.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "kernels/bfloat16.h"
#include "kernels/device.h"
#include "kernels/dtype.h"
#include "kernels/float8.h"

namespace sluice::kernels {

// Up to four dimensions, outermost first. REQUIRES of the list constructor: at most four entries.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<int64_t> dims) {
    for (int64_t dim : dims) dims_[static_cast<size_t>(rank_++)] = dim;
  }

  constexpr int rank() const { return rank_; }
  constexpr int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  constexpr void set(int axis, int64_t dim) { dims_[static_cast<size_t>(axis)] = dim; }
  constexpr int64_t elements() const {
    int64_t product = 1;
    for (int axis = 0; axis < rank_; ++axis) product *= (*this)[axis];
    return product;
  }
  // Elements in one index of dimension 0; 1 for rank 0 and 1.
  constexpr int64_t row_elements() const {
    int64_t product = 1;
    for (int axis = 1; axis < rank_; ++axis) product *= (*this)[axis];
    return product;
  }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxRank> dims_ = {};
  int rank_ = 0;
};

std::string ToString(const Shape& shape);  // "[1024, 576]"

template <typename T>
constexpr DType DTypeOf() {
  using Value = std::remove_cv_t<T>;
  static_assert(std::is_same_v<Value, float> || std::is_same_v<Value, BFloat16> || std::is_same_v<Value, int32_t> ||
                std::is_same_v<Value, int64_t> || std::is_same_v<Value, double> || std::is_same_v<Value, int16_t> ||
                std::is_same_v<Value, Float8>);
  if constexpr (std::is_same_v<Value, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<Value, BFloat16>) return DType::kBFloat16;
  if constexpr (std::is_same_v<Value, int32_t>) return DType::kInt32;
  if constexpr (std::is_same_v<Value, double>) return DType::kFloat64;
  if constexpr (std::is_same_v<Value, int16_t>) return DType::kInt16;
  if constexpr (std::is_same_v<Value, Float8>) return DType::kFloat8;
  return DType::kInt64;
}

// Row-major. Dimensions 1.. are dense; consecutive indices of dimension 0 lie `row_stride` elements apart, so that a
// slice of columns of a packed matrix (the queries in packed QKV) is a view. A kernel accepts a view that is not dense
// only where its header says "strided". A view without data is an absent argument.
template <typename Data>
struct BasicTensorView {
  Data* data = nullptr;
  DType dtype = DType::kFloat32;
  Shape shape;
  Device device;
  int64_t row_stride = 0;

  constexpr BasicTensorView() = default;
  constexpr BasicTensorView(Data* data, DType dtype, Shape shape, Device device)
      : data(data), dtype(dtype), shape(shape), device(device), row_stride(shape.row_elements()) {}

  // A dense CPU tensor of the pointer's own type.
  template <typename T, typename = std::enable_if_t<!std::is_void_v<T> && std::is_convertible_v<T*, Data*>>>
  constexpr BasicTensorView(T* data, Shape shape) : BasicTensorView(data, DTypeOf<T>(), shape, Device::Cpu()) {}

  // A mutable view converts to a const one.
  template <typename Other, typename = std::enable_if_t<std::is_convertible_v<Other*, Data*>>>
  constexpr BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT: implicit on purpose
      : data(other.data), dtype(other.dtype), shape(other.shape), device(other.device), row_stride(other.row_stride) {}

  static constexpr BasicTensorView Empty() { return {}; }

  constexpr bool empty() const { return data == nullptr; }
  constexpr int64_t dim(int axis) const { return shape[axis]; }
  constexpr int64_t elements() const { return shape.elements(); }
  constexpr int64_t bytes() const { return elements() * SizeOf(dtype); }
  constexpr bool dense() const { return row_stride == shape.row_elements(); }

  // The elements as T. REQUIRES: T is the view's dtype and the caller can address the device.
  template <typename T>
  auto* as() const {
    return static_cast<std::conditional_t<std::is_const_v<Data>, const T, T>*>(data);
  }

  // Indices begin..end-1 of dimension 0.
  BasicTensorView Rows(int64_t begin, int64_t end) const {
    BasicTensorView slice = *this;
    slice.data = At(begin * row_stride);
    slice.shape.set(0, end - begin);
    return slice;
  }

  // Columns begin..end-1 of a matrix [rows, columns]: strided unless it is all of them.
  BasicTensorView Columns(int64_t begin, int64_t end) const {
    BasicTensorView slice = *this;
    slice.data = At(begin);
    slice.shape.set(1, end - begin);
    return slice;
  }

  // The same elements under another shape. REQUIRES: as many elements; if not dense, dimension 0 unchanged.
  BasicTensorView Reshaped(Shape new_shape) const {
    BasicTensorView view = *this;
    view.shape = new_shape;
    if (dense()) view.row_stride = new_shape.row_elements();
    return view;
  }

 private:
  Data* At(int64_t elements) const {
    using Byte = std::conditional_t<std::is_const_v<Data>, const char, char>;
    return static_cast<Byte*>(data) + elements * SizeOf(dtype);
  }
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

}  // namespace sluice::kernels
