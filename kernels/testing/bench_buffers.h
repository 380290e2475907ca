// Memory for kernel benchmarks: small repeatable values, so that no run meets a NaN or a denormal.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tensor_view.h"

namespace sluice::kernels::testing {

template <typename T>
class BenchBuffer {
 public:
  explicit BenchBuffer(Shape shape) : shape_(shape), data_(static_cast<size_t>(shape.elements())) {
    uint32_t state = 1;
    for (T& value : data_) {
      state = state * 1664525u + 1013904223u;
      value = T(static_cast<float>(state >> 8) / 16777216.0f - 0.5f);
    }
  }

  TensorView view() { return TensorView(data_.data(), shape_); }
  operator TensorView() { return view(); }       // NOLINT: implicit on purpose
  operator ConstTensorView() { return view(); }  // NOLINT

 private:
  Shape shape_;
  std::vector<T> data_;
};

}  // namespace sluice::kernels::testing
