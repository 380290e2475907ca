#include "kernels/flat/flat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
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
using testing::SumTolerance;
using testing::ToleranceOf;

constexpr DType kF = DType::kFloat32;
constexpr DType kB = DType::kBFloat16;

struct Case {
  int64_t count;
  DType dtype;
};

// One element, none of a vector's length, past one block (16,384) and past several threads' parts.
constexpr Case kCases[] = {{1, kF}, {37, kB}, {16385, kF}, {70001, kF}, {50003, kB}};

class FlatTest : public testing::BackendTest<Case> {};

TEST_P(FlatTest, SumOfSquaresIsInDouble) {
  const auto& [c, backend] = GetParam();
  const auto x = HostTensor::Random(c.dtype, {c.count}, 1, 1e3);
  double want = 0.0;
  for (const double value : x.values()) want += value * value;
  const auto stream = DefaultStream(testing::TestDevice());
  ASSERT_OK_AND_ASSIGN(const double sum,
                       backend == Backend::kCpu ? cpu::SumOfSquares(x, stream) : aten::SumOfSquares(x, stream));
  EXPECT_NEAR(sum / want, 1.0, 1e-12);
}

TEST_P(FlatTest, AllFiniteFindsOneBadElementAnywhere) {
  const auto& [c, backend] = GetParam();
  const auto stream = DefaultStream(testing::TestDevice());
  const auto all_finite = [&](const HostTensor& x) {
    return backend == Backend::kCpu ? cpu::AllFinite(x, stream) : aten::AllFinite(x, stream);
  };
  const auto good = HostTensor::Random(c.dtype, {c.count}, 1, 1e20);
  ASSERT_OK_AND_ASSIGN(const bool finite, all_finite(good));
  EXPECT_TRUE(finite);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {infinity, -infinity, std::nan("")}) {
    for (const int64_t at : {int64_t{0}, c.count / 2, c.count - 1}) {
      std::vector<double> values = good.values();
      values[at] = bad;
      ASSERT_OK_AND_ASSIGN(const bool still_finite, all_finite(HostTensor::Of(c.dtype, {c.count}, values)));
      EXPECT_FALSE(still_finite) << bad << " at " << at;
    }
  }
}

TEST_P(FlatTest, ScaleFillAndAddScaled) {
  const auto& [c, backend] = GetParam();
  const auto stream = DefaultStream(testing::TestDevice());
  const bool on_cpu = backend == Backend::kCpu;
  auto x = HostTensor::Random(c.dtype, {c.count}, 1);
  std::vector<double> want = x.values();
  for (double& value : want) value *= 0.3f;
  ASSERT_OK(on_cpu ? cpu::Scale(x, 0.3f, stream) : aten::Scale(x, 0.3f, stream));
  testing::WaitForTestDevice();
  EXPECT_TENSOR_NEAR(x, want, ToleranceOf(c.dtype));

  for (const DType other : {kF, kB}) {
    const auto add = HostTensor::Random(other, {c.count}, 2);
    const std::vector<double> adds = add.values();
    want = x.values();
    for (size_t i = 0; i < want.size(); ++i) want[i] += -1.7f * adds[i];
    ASSERT_OK(on_cpu ? cpu::AddScaled(-1.7f, add, x, stream) : aten::AddScaled(-1.7f, add, x, stream));
    testing::WaitForTestDevice();
    EXPECT_TENSOR_NEAR(x, want, ToleranceOf(c.dtype));
  }

  ASSERT_OK(on_cpu ? cpu::Fill(x, 2.5f, stream) : aten::Fill(x, 2.5f, stream));
  testing::WaitForTestDevice();
  EXPECT_TENSOR_NEAR(x, std::vector<double>(static_cast<size_t>(c.count), 2.5), (testing::Tolerance{0, 0}));
}

TEST_P(FlatTest, CastRoundsToNearestEven) {
  const auto& [c, backend] = GetParam();
  const auto stream = DefaultStream(testing::TestDevice());
  for (const DType from_dtype : {kF, kB}) {
    const auto from = HostTensor::Random(from_dtype, {c.count}, 1);
    std::vector<double> want = from.values();
    if (c.dtype == kB) {
      for (double& value : want)
        value = std::ldexp(std::nearbyint(std::ldexp(value, 7 - std::ilogb(value))), std::ilogb(value) - 7);
    }
    auto to = HostTensor::Poisoned(c.dtype, {c.count});
    ASSERT_OK(backend == Backend::kCpu ? cpu::Cast(from, to, stream) : aten::Cast(from, to, stream));
    testing::WaitForTestDevice();
    EXPECT_TENSOR_NEAR(to, want, (testing::Tolerance{0, 0}));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FlatTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(FlatTest, CastOfSpecialValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double tie_down = 1.0 + 1.0 / 256, tie_up = 1.0 + 3.0 / 256;
  const auto from = HostTensor::Of(kF, {7}, {infinity, -infinity, 3.4e38, -0.0, tie_down, tie_up, std::nan("")});
  auto to = HostTensor::Poisoned(kB, {7});
  ASSERT_OK(Cast(from, to, DefaultStream(Device::Cpu())));
  const std::vector<double> got = to.values();
  EXPECT_EQ(got[0], infinity);
  EXPECT_EQ(got[1], -infinity);
  EXPECT_EQ(got[2], infinity);  // above the largest bf16 and its half unit
  EXPECT_TRUE(std::signbit(got[3]));
  EXPECT_EQ(got[4], 1.0);
  EXPECT_EQ(got[5], 1.0 + 4.0 / 256);
  EXPECT_TRUE(std::isnan(got[6]));
}

TEST(FlatTest, ShapesMayDifferElementsMayNot) {
  const auto from = HostTensor::Random(kF, {4, 6}, 1);
  auto to = HostTensor::Poisoned(kB, {24});
  EXPECT_OK(Cast(from, to, DefaultStream(Device::Cpu())));
  auto shorter = HostTensor::Poisoned(kB, {23});
  EXPECT_THAT(Cast(from, shorter, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cast: to: has 23 elements, expected 24")));
  EXPECT_THAT(SumOfSquares(from.view().Columns(0, 3), DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sum_of_squares: x:")));
}

}  // namespace
}  // namespace sluice::kernels
