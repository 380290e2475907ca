#include "kernels/bias/bias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/bias/backends.h"
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
  int64_t tokens, columns;
  DType dtype;
  int64_t padding;
};

constexpr Case kCases[] = {{1, 1, kF, 0}, {400, 1152, kF, 0}, {33, 100, kB, 28}, {1000, 7, kF, 1}};

class BiasTest : public testing::BackendTest<Case> {};

TEST_P(BiasTest, ForwardAddsToEveryRow) {
  const auto& [c, backend] = GetParam();
  const auto bias = HostTensor::Random(c.dtype, {c.columns}, 1);
  auto y = HostTensor::Random(c.dtype, {c.tokens, c.columns}, 2, 1.0, c.columns + c.padding);
  std::vector<double> want = y.values();
  const std::vector<double> biases = bias.values();
  for (size_t i = 0; i < want.size(); ++i) want[i] += biases[i % c.columns];
  ASSERT_OK(CALL_BACKEND(backend, Forward, (BiasForward{.bias = bias, .y = y})));
  EXPECT_TENSOR_NEAR(y, want, ToleranceOf(c.dtype));
}

TEST_P(BiasTest, BackwardAccumulatesColumnSums) {
  const auto& [c, backend] = GetParam();
  const auto dy = HostTensor::Random(c.dtype, {c.tokens, c.columns}, 1, 1.0, c.columns + c.padding);
  auto dbias = HostTensor::Random(kF, {c.columns}, 2);
  std::vector<double> want = dbias.values();
  const std::vector<double> dys = dy.values();
  for (size_t i = 0; i < dys.size(); ++i) want[i % c.columns] += dys[i];
  ASSERT_OK(CALL_BACKEND(backend, Backward, (BiasBackward{.dy = dy, .dbias = dbias})));
  EXPECT_TENSOR_NEAR(dbias, want, SumTolerance(kF, static_cast<double>(c.tokens)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, BiasTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(BiasTest, NamesTheWrongArgument) {
  const auto bias = HostTensor::Random(kF, {3}, 1);
  auto y = HostTensor::Random(kF, {2, 4}, 2);
  EXPECT_THAT(Forward(BiasForward{.bias = bias, .y = y}, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bias: bias: expected fp32 [4]")));
}

}  // namespace
}  // namespace sluice::kernels
