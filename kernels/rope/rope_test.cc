#include "kernels/rope/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/rope/backends.h"
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
  int64_t tokens, q_heads, k_heads, head_dim;
  DType dtype;
  float scaling;
  int64_t padding;
};

constexpr Case kCases[] = {
    {1, 1, 1, 2, kF, 1.0f, 0},    {40, 9, 3, 64, kF, 1.0f, 0}, {33, 4, 2, 128, kB, 1.0f, 96},
    {17, 2, 0, 80, kF, 1.25f, 0}, {5, 14, 2, 64, kB, 0.5f, 0}, {300, 3, 1, 64, kF, 1.0f, 192},
};

class RopeTest : public testing::BackendTest<Case> {};

struct Tables {
  HostTensor positions, inv_freq;
};

// Positions restart, as in packed sequences, and go far: fp32 angles are part of the contract.
Tables MakeTables(const Case& c) {
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < c.tokens; ++t) positions.push_back(static_cast<int32_t>(t % 7 == 0 ? 31000 + t : t % 19));
  std::vector<double> inv_freq;
  for (int64_t i = 0; i < c.head_dim / 2; ++i) {
    inv_freq.push_back(std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim)));
  }
  return {HostTensor::OfInts(positions), HostTensor::Of(kF, {c.head_dim / 2}, inv_freq)};
}

std::vector<double> Rotated(const HostTensor& x, const Tables& tables, int64_t heads, const Case& c, double direction) {
  const std::vector<double> positions = tables.positions.values();
  const std::vector<double> inv_freq = tables.inv_freq.values();
  const int64_t half = c.head_dim / 2;
  std::vector<double> y = x.values();
  for (int64_t row = 0; row < c.tokens * heads; ++row) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(positions[row / heads]) * static_cast<float>(inv_freq[i]);
      const double cosine = std::cos(angle) * c.scaling;
      const double sine = std::sin(angle) * c.scaling * direction;
      double& first = y[row * c.head_dim + i];
      double& second = y[row * c.head_dim + half + i];
      const double a = first;
      first = a * cosine - second * sine;
      second = second * cosine + a * sine;
    }
  }
  return y;
}

TEST_P(RopeTest, EqualsDoubleReferenceBothWays) {
  const auto& [c, backend] = GetParam();
  const Tables tables = MakeTables(c);
  for (const double direction : {1.0, -1.0}) {
    const Shape q_shape = {c.tokens, c.q_heads, c.head_dim};
    const Shape k_shape = {c.tokens, c.k_heads, c.head_dim};
    auto q = HostTensor::Random(c.dtype, q_shape, 1, 1.0, q_shape.row_elements() + c.padding);
    auto k =
        c.k_heads > 0 ? HostTensor::Random(c.dtype, k_shape, 2, 1.0, k_shape.row_elements() + c.padding) : HostTensor();
    const std::vector<double> want_q = Rotated(q, tables, c.q_heads, c, direction);
    const std::vector<double> want_k = c.k_heads > 0 ? Rotated(k, tables, c.k_heads, c, direction) : want_q;
    const Rope args = {
        .q = q, .k = k, .positions = tables.positions, .inv_freq = tables.inv_freq, .attention_scaling = c.scaling};
    ASSERT_OK(direction > 0 ? CALL_BACKEND(backend, Forward, args) : CALL_BACKEND(backend, Backward, args));
    EXPECT_TENSOR_NEAR(q, want_q, ToleranceOf(c.dtype));
    if (c.k_heads > 0) {
      EXPECT_TENSOR_NEAR(k, want_k, ToleranceOf(c.dtype));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RopeTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(RopeTest, NamesTheWrongArgument) {
  auto q = HostTensor::Random(kF, {4, 2, 8}, 1);
  const auto positions = HostTensor::OfInts({0, 1, 2, 3});
  const auto short_table = HostTensor::Random(kF, {3}, 2);
  const Stream cpu = DefaultStream(Device::Cpu());
  EXPECT_THAT(Forward(Rope{.q = q, .positions = positions, .inv_freq = short_table}, cpu),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rope: inv_freq: expected fp32 [4]")));
  auto odd = HostTensor::Random(kF, {4, 2, 7}, 1);
  EXPECT_THAT(Forward(Rope{.q = odd, .positions = positions, .inv_freq = short_table}, cpu),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rope: q: its head size 7 is odd")));
}

}  // namespace
}  // namespace sluice::kernels
