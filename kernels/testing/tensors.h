// Tensors for kernel tests: host buffers with known contents, and their comparison with a double reference.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/stream.h"
#include "kernels/tensor_view.h"
#include "kernels/testing/tolerance.h"

namespace sluice::kernels::testing {

// Which implementation of a kernel a test runs: the reference, or the GPU's on the first GPU.
enum class Backend : uint8_t { kCpu, kCuda };

std::string Name(Backend backend);
std::vector<Backend> AvailableBackends();  // kCuda where there is a GPU

// The device of the views that HostTensors give: the CPU unless a BackendTest on kCuda runs.
Device TestDevice();
void SetTestDevice(Device device);

// Waits for the GPU if the test's device is one: host memory shows a kernel's results only then.
void WaitForTestDevice();

// A fixture over a table of cases and the available back ends.
template <typename Case>
class BackendTest : public ::testing::TestWithParam<std::tuple<Case, Backend>> {
 protected:
  void SetUp() override {
    if (std::get<1>(this->GetParam()) == Backend::kCuda) SetTestDevice(Device::Cuda(0));
  }
  void TearDown() override { SetTestDevice(Device::Cpu()); }
};

// The name of one test of a BackendTest: "cuda_3".
struct BackendTestName {
  template <typename Info>
  std::string operator()(const Info& info) const {
    return Name(std::get<1>(info.param)) + "_" + std::to_string(info.index / AvailableBackends().size());
  }
};

// Host memory that a GPU reads and writes where it lies, if there is one.
template <typename T>
struct SharedAllocator {
  using value_type = T;
  SharedAllocator() = default;
  template <typename U>
  SharedAllocator(const SharedAllocator<U>&) {}  // NOLINT: allocators convert
  T* allocate(size_t count);
  void deallocate(T* data, size_t count);
  friend bool operator==(SharedAllocator, SharedAllocator) { return true; }
};
using SharedBytes = std::vector<uint8_t, SharedAllocator<uint8_t>>;

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
  const SharedBytes& bytes() const { return bytes_; }

 private:
  void Set(int64_t element, double value);

  DType dtype_ = DType::kFloat32;
  Shape shape_;
  int64_t row_stride_ = 0;
  SharedBytes bytes_;
};

// Empty, or a sentence about the worst element of `got` that is further from `want` than
// absolute + relative * |want|, NaN included; also when a gap was written.
std::string Difference(const HostTensor& got, const std::vector<double>& want, Tolerance tolerance);

}  // namespace sluice::kernels::testing

#define EXPECT_TENSOR_NEAR(got, want, tolerance) \
  EXPECT_EQ(::sluice::kernels::testing::Difference((got), (want), (tolerance)), "") << #got

// Runs `function` of the back end and waits for it: CALL_BACKEND(backend, Forward, args).
#define CALL_BACKEND(backend, function, args)                                       \
  [&] {                                                                             \
    const ::sluice::kernels::Stream stream =                                        \
        ::sluice::kernels::DefaultStream(::sluice::kernels::testing::TestDevice()); \
    auto result = (backend) == ::sluice::kernels::testing::Backend::kCpu            \
                      ? ::sluice::kernels::cpu::function((args), stream)            \
                      : ::sluice::kernels::cuda::function((args), stream);          \
    ::sluice::kernels::testing::WaitForTestDevice();                                \
    return result;                                                                  \
  }()
