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

constexpr DType kF = DType::kFloat32;
constexpr DType kB = DType::kBFloat16;

struct Case {
  int64_t tokens, columns;
  DType dtype;
  int64_t padding;
};

constexpr Case kCases[] = {{1, 1, kF, 0},    {400, 1152, kF, 0}, {33, 100, kB, 28},
                           {1000, 7, kF, 1}, {2000, 136, kB, 8}, {70, 4608, kF, 0}};

class BiasTest : public testing::BackendTest<Case> {};

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
  const auto dy = HostTensor::Random(kF, {2, 4}, 2);
  auto dbias = HostTensor::Random(kF, {3}, 1);
  EXPECT_THAT(Backward(BiasBackward{.dy = dy, .dbias = dbias}, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bias: dbias: expected fp32 [4]")));
}

}  // namespace
}  // namespace sluice::kernels
