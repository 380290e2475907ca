#include "kernels/flat/flat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/flat/backends.h"
#include "kernels/testing/tensors.h"

namespace sluice::kernels {
namespace {

using ::sluice::testing::StatusIs;
using testing::Backend;
using ::testing::HasSubstr;
using testing::HostTensor;

constexpr DType kF = DType::kFloat32;
constexpr DType kB = DType::kBFloat16;

struct Case {
  int64_t count;
  DType dtype;
};

// Runs one back end's function on the test's stream and waits for it.
template <typename Function>
absl::Status Call(Function function) {
  absl::Status status = function(DefaultStream(testing::TestDevice()));
  testing::WaitForTestDevice();
  return status;
}

// One element, none of a vector's length, past one block (16,384) and past several threads' parts.
constexpr Case kCases[] = {{1, kF}, {37, kB}, {16385, kF}, {70001, kF}, {50003, kB}};

class FlatTest : public testing::BackendTest<Case> {};

TEST_P(FlatTest, SumOfSquaresIsInDouble) {
  const auto& [c, backend] = GetParam();
  const auto x = HostTensor::Random(c.dtype, {c.count}, 1, 1e3);
  double want = 0.0;
  for (const double value : x.values()) want += value * value;
  auto sum = HostTensor::Poisoned(DType::kFloat64, {1});
  ASSERT_OK(Call([&](Stream stream) {
    return backend == Backend::kCpu ? cpu::SumOfSquares(x, sum, stream) : cuda::SumOfSquares(x, sum, stream);
  }));
  EXPECT_TENSOR_NEAR(sum, std::vector<double>{want}, (testing::Tolerance{1e-12, 0}));
  // Not where the array lies but its length sets the order.
  HostTensor moved = HostTensor::Random(c.dtype, {c.count + 1}, 2);
  const TensorView slice = moved.view().Rows(1, c.count + 1);
  std::memcpy(slice.data, x.view().data, static_cast<size_t>(x.view().bytes()));
  auto other = HostTensor::Poisoned(DType::kFloat64, {1});
  ASSERT_OK(Call([&](Stream stream) {
    return backend == Backend::kCpu ? cpu::SumOfSquares(slice, other, stream)
                                    : cuda::SumOfSquares(slice, other, stream);
  }));
  EXPECT_EQ(sum.bytes(), other.bytes());
}

TEST_P(FlatTest, AddSumAddsToWhatIsThere) {
  const auto& [c, backend] = GetParam();
  const auto x = HostTensor::Random(kF, {c.count}, 1, 1e3);
  double want = 12345.5;
  for (const double value : x.values()) want -= 0.25 * value;
  auto sum = HostTensor::Of(DType::kFloat64, {1}, {12345.5});
  ASSERT_OK(Call([&](Stream stream) {
    return backend == Backend::kCpu ? cpu::AddSum(x, -0.25, sum, stream) : cuda::AddSum(x, -0.25, sum, stream);
  }));
  EXPECT_TENSOR_NEAR(sum, std::vector<double>{want}, (testing::Tolerance{1e-12, 1e-6}));
}

TEST_P(FlatTest, FillReachesEveryElement) {
  const auto& [c, backend] = GetParam();
  for (const DType dtype : {c.dtype, DType::kFloat64}) {
    for (const float value : {2.5f, 0.0f, -0.0f}) {
      for (const int64_t first : {0, 1}) {  // aligned to a packet and not
        auto x = HostTensor::Poisoned(dtype, {c.count + first});
        std::vector<double> want(static_cast<size_t>(c.count + first), value);
        if (first == 1) {
          want[0] = 7.0;
          ASSERT_OK(cpu::Fill(x.view().Rows(0, 1), 7.0f, Stream{}));
        }
        const TensorView slice = x.view().Rows(first, c.count + first);
        ASSERT_OK(Call([&](Stream stream) {
          return backend == Backend::kCpu ? cpu::Fill(slice, value, stream) : cuda::Fill(slice, value, stream);
        }));
        EXPECT_TENSOR_NEAR(x, want, (testing::Tolerance{0, 0}));
        EXPECT_EQ(std::signbit(x.values().back()), std::signbit(value));
      }
    }
  }
}

TEST_P(FlatTest, CastRoundsToNearestEven) {
  const auto& [c, backend] = GetParam();
  for (const DType from_dtype : {kF, kB}) {
    for (const int64_t first : {0, 1}) {
      const auto whole = HostTensor::Random(from_dtype, {c.count + first}, 1);
      const ConstTensorView from = whole.view().Rows(first, c.count + first);
      std::vector<double> want = whole.values();
      want.erase(want.begin(), want.begin() + first);
      if (c.dtype == kB) {
        for (double& value : want)
          value = std::ldexp(std::nearbyint(std::ldexp(value, 7 - std::ilogb(value))), std::ilogb(value) - 7);
      }
      auto to = HostTensor::Poisoned(c.dtype, {c.count});
      ASSERT_OK(Call([&](Stream stream) {
        return backend == Backend::kCpu ? cpu::Cast(from, to, stream) : cuda::Cast(from, to, stream);
      }));
      EXPECT_TENSOR_NEAR(to, want, (testing::Tolerance{0, 0}));
    }
  }
}

TEST_P(FlatTest, CastOfSpecialValues) {
  const Backend backend = std::get<1>(GetParam());
  const double infinity = std::numeric_limits<double>::infinity();
  const double tie_down = 1.0 + 1.0 / 256, tie_up = 1.0 + 3.0 / 256;
  const auto from = HostTensor::Of(kF, {9}, {infinity, -infinity, 3.4e38, -0.0, tie_down, tie_up, std::nan(""), 1, 2});
  auto to = HostTensor::Poisoned(kB, {9});
  ASSERT_OK(Call([&](Stream stream) {
    return backend == Backend::kCpu ? cpu::Cast(from, to, stream) : cuda::Cast(from, to, stream);
  }));
  const std::vector<double> got = to.values();
  EXPECT_EQ(got[0], infinity);
  EXPECT_EQ(got[1], -infinity);
  EXPECT_EQ(got[2], infinity);  // above the largest bf16 and its half unit
  EXPECT_TRUE(std::signbit(got[3]));
  EXPECT_EQ(got[4], 1.0);
  EXPECT_EQ(got[5], 1.0 + 4.0 / 256);
  EXPECT_TRUE(std::isnan(got[6]));
}

INSTANTIATE_TEST_SUITE_P(Shapes, FlatTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(FlatChecksTest, ShapesMayDifferElementsMayNot) {
  const auto from = HostTensor::Random(kF, {4, 6}, 1);
  auto to = HostTensor::Poisoned(kB, {24});
  EXPECT_OK(Cast(from, to, DefaultStream(Device::Cpu())));
  auto shorter = HostTensor::Poisoned(kB, {23});
  EXPECT_THAT(Cast(from, shorter, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cast: to: has 23 elements, expected 24")));
  auto sum = HostTensor::Poisoned(DType::kFloat64, {1});
  EXPECT_THAT(SumOfSquares(from.view().Columns(0, 3), sum, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sum_of_squares: x:")));
  EXPECT_THAT(SumOfSquares(from, to, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sum_of_squares: sum: expected fp64 [1]")));
  EXPECT_THAT(AddSum(to, 1.0, sum, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("add_sum: x: expected fp32")));
}

}  // namespace
}  // namespace sluice::kernels
