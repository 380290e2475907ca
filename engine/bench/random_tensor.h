// Device tensors full of random values, for benchmarks: zeros make a GPU look a tenth faster than it is.
#pragma once

#include "absl/status/statusor.h"
#include "engine/device/device_memory.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

class RandomTensor {
 public:
  // Floating types: normal with deviation `scale`. int32: uniform in 0..limit-1. Else zeros.
  static absl::StatusOr<RandomTensor> Create(kernels::DType dtype, kernels::Shape shape, kernels::Stream stream,
                                             uint64_t seed, double scale = 1.0, int64_t limit = 0);

  kernels::TensorView view() const { return view_; }
  operator kernels::TensorView() const { return view_; }       // NOLINT: implicit on purpose
  operator kernels::ConstTensorView() const { return view_; }  // NOLINT

 private:
  DeviceMemory memory_;
  kernels::TensorView view_;
};

}  // namespace sluice::engine
