// Tensors for kernel tests: host buffers with known contents, and their comparison with a double reference.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/stream.h"
#include "kernels/tensor_view.h"
#include "kernels/testing/tolerance.h"

namespace sluice::kernels::testing {

// Which implementation of a kernel a test runs. kAten runs on CPU tensors, so that the CUDA path's formulas are proven
// where there is no GPU.
enum class Backend { kCpu, kAten };

std::string Name(Backend backend);

// An owned tensor in host memory with bytes behind it that must not be written. `row_stride` > the row makes it
// strided; the gaps are guarded too.
class HostTensor {
 public:
  HostTensor() = default;  // absent
  HostTensor(DType dtype, Shape shape, int64_t row_stride = 0);

  // Standard-normal values times `scale`, rounded to the dtype.
  static HostTensor Random(DType dtype, Shape shape, uint64_t seed, double scale = 1.0, int64_t row_stride = 0);
  static HostTensor Of(DType dtype, Shape shape, const std::vector<double>& values);
  static HostTensor OfInts(const std::vector<int32_t>& values);
  // NaN everywhere (the least integer for integers): an element that is not written fails every comparison.
  static HostTensor Poisoned(DType dtype, Shape shape, int64_t row_stride = 0);

  TensorView view();
  ConstTensorView view() const;
  operator TensorView() { return view(); }             // NOLINT: implicit on purpose
  operator ConstTensorView() const { return view(); }  // NOLINT

  std::vector<double> values() const;  // in row-major order, without gaps
  bool gaps_untouched() const;
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  void Set(int64_t element, double value);

  DType dtype_ = DType::kFloat32;
  Shape shape_;
  int64_t row_stride_ = 0;
  std::vector<uint8_t> bytes_;
};

// Empty, or a sentence about the worst element of `got` that is further from `want` than
// absolute + relative * |want|, NaN included; also when a gap was written.
std::string Difference(const HostTensor& got, const std::vector<double>& want, Tolerance tolerance);

}  // namespace sluice::kernels::testing

#define EXPECT_TENSOR_NEAR(got, want, tolerance) \
  EXPECT_EQ(::sluice::kernels::testing::Difference((got), (want), (tolerance)), "") << #got

// Runs `function` of the back end on CPU tensors: CALL_BACKEND(backend, Forward, args).
#define CALL_BACKEND(backend, function, args)                                                      \
  ((backend) == ::sluice::kernels::testing::Backend::kCpu                                          \
       ? ::sluice::kernels::cpu::function((args), ::sluice::kernels::DefaultStream(Device::Cpu())) \
       : ::sluice::kernels::aten::function((args), ::sluice::kernels::DefaultStream(Device::Cpu())))
