#include "kernels/swiglu/swiglu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/swiglu/backends.h"
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
  int64_t tokens, size;
  DType dtype;
  double scale;  // of the inputs: large ones reach the flat ends of the sigmoid
};

constexpr Case kCases[] = {
    {1, 1, kF, 1.0},    {37, 1536, kF, 1.0},  {5, 4864, kB, 1.0},
    {64, 33, kF, 40.0}, {100, 100, kB, 20.0}, {301, 72, kB, 1.0},
};

class SwigluTest : public testing::BackendTest<Case> {};

TEST_P(SwigluTest, ForwardEqualsDoubleReference) {
  const auto& [c, backend] = GetParam();
  const auto gate_up = HostTensor::Random(c.dtype, {c.tokens, 2 * c.size}, 1, c.scale);
  auto y = HostTensor::Poisoned(c.dtype, {c.tokens, c.size});
  ASSERT_OK(CALL_BACKEND(backend, Forward, (SwigluForward{.gate_up = gate_up, .y = y})));
  const std::vector<double> in = gate_up.values();
  std::vector<double> want;
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t i = 0; i < c.size; ++i) {
      const double gate = in[t * 2 * c.size + i];
      want.push_back(gate / (1.0 + std::exp(-gate)) * in[t * 2 * c.size + c.size + i]);
    }
  }
  EXPECT_TENSOR_NEAR(y, want, ToleranceOf(c.dtype));
}

TEST_P(SwigluTest, BackwardEqualsDoubleReferenceInPlaceToo) {
  const auto& [c, backend] = GetParam();
  const auto dy = HostTensor::Random(c.dtype, {c.tokens, c.size}, 1);
  auto gate_up = HostTensor::Random(c.dtype, {c.tokens, 2 * c.size}, 2, c.scale);
  const std::vector<double> in = gate_up.values();
  const std::vector<double> dys = dy.values();
  std::vector<double> want(in.size());
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t i = 0; i < c.size; ++i) {
      const double gate = in[t * 2 * c.size + i];
      const double up = in[t * 2 * c.size + c.size + i];
      const double sigmoid = 1.0 / (1.0 + std::exp(-gate));
      want[t * 2 * c.size + i] = dys[t * c.size + i] * up * sigmoid * (1.0 + gate * (1.0 - sigmoid));
      want[t * 2 * c.size + c.size + i] = dys[t * c.size + i] * gate * sigmoid;
    }
  }
  // With gates around 40 the factor 1 - sigmoid has no correct digit left in fp32, and does not need one: it is tiny.
  testing::Tolerance tolerance = ToleranceOf(c.dtype);
  tolerance.absolute *= c.scale;
  auto dgate_up = HostTensor::Poisoned(c.dtype, {c.tokens, 2 * c.size});
  ASSERT_OK(CALL_BACKEND(backend, Backward, (SwigluBackward{.dy = dy, .gate_up = gate_up, .dgate_up = dgate_up})));
  EXPECT_TENSOR_NEAR(dgate_up, want, tolerance);
  ASSERT_OK(CALL_BACKEND(backend, Backward, (SwigluBackward{.dy = dy, .gate_up = gate_up, .dgate_up = gate_up})));
  EXPECT_EQ(gate_up.values(), dgate_up.values());
}

TEST_P(SwigluTest, BackwardGivesForwardsYInPlaceToo) {
  const auto& [c, backend] = GetParam();
  const auto dy = HostTensor::Random(c.dtype, {c.tokens, c.size}, 1);
  auto gate_up = HostTensor::Random(c.dtype, {c.tokens, 2 * c.size}, 2, c.scale);
  auto y = HostTensor::Poisoned(c.dtype, {c.tokens, c.size});
  auto y_again = HostTensor::Poisoned(c.dtype, {c.tokens, c.size});
  ASSERT_OK(CALL_BACKEND(backend, Forward, (SwigluForward{.gate_up = gate_up, .y = y})));
  ASSERT_OK(CALL_BACKEND(backend, Backward,
                         (SwigluBackward{.dy = dy, .gate_up = gate_up, .dgate_up = gate_up, .y = y_again})));
  EXPECT_EQ(y_again.values(), y.values());  // bit for bit: a recomputed activation is the activation
}

INSTANTIATE_TEST_SUITE_P(Shapes, SwigluTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

struct ProjectionCase {
  int64_t tokens, hidden, size;
  DType dtype;
  bool bias;
};

constexpr ProjectionCase kProjectionCases[] = {
    {3, 16, 8, kF, true},        {40, 24, 33, kB, false},
    {1024, 384, 128, kB, false},  // on the GPU: one tile of columns, whole rows
    {1030, 392, 200, kB, false},  // tiles that end outside, K that is no multiple of 64
    {1100, 384, 136, kB, true},  {5000, 576, 1000, kB, false},
    {1024, 64, 128, kB, false},
};

class SwigluProjectionTest : public testing::BackendTest<ProjectionCase> {};

TEST_P(SwigluProjectionTest, EqualsDoubleReferenceAndTheActivationOfWhatItStored) {
  const auto& [c, backend] = GetParam();
  const auto x = HostTensor::Random(c.dtype, {c.tokens, c.hidden}, 1);
  const auto weight = HostTensor::Random(c.dtype, {2 * c.size, c.hidden}, 2, 0.2);
  const auto bias = c.bias ? HostTensor::Random(c.dtype, {2 * c.size}, 3) : HostTensor();
  auto gate_up = HostTensor::Poisoned(c.dtype, {c.tokens, 2 * c.size});
  auto y = HostTensor::Poisoned(c.dtype, {c.tokens, c.size});
  ASSERT_OK(Forward(SwigluProjection{.x = x, .weight = weight, .bias = bias, .gate_up = gate_up, .y = y},
                    DefaultStream(testing::TestDevice())));
  testing::WaitForTestDevice();
  const std::vector<double> xs = x.values(), weights = weight.values();
  const std::vector<double> biases = c.bias ? bias.values() : std::vector<double>(static_cast<size_t>(2 * c.size));
  std::vector<double> want;
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t i = 0; i < 2 * c.size; ++i) {
      double sum = biases[i];
      for (int64_t k = 0; k < c.hidden; ++k) sum += xs[t * c.hidden + k] * weights[i * c.hidden + k];
      want.push_back(sum);
    }
  }
  EXPECT_TENSOR_NEAR(gate_up, want, SumTolerance(c.dtype, static_cast<double>(c.hidden)));
  auto want_y = HostTensor::Poisoned(c.dtype, {c.tokens, c.size});
  ASSERT_OK(CALL_BACKEND(backend, Forward, (SwigluForward{.gate_up = gate_up, .y = want_y})));
  EXPECT_EQ(y.values(), want_y.values());
}

INSTANTIATE_TEST_SUITE_P(Shapes, SwigluProjectionTest,
                         ::testing::Combine(::testing::ValuesIn(kProjectionCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(SwigluTest, KeepsNanAndSurvivesExtremes) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto gate_up = HostTensor::Of(kF, {1, 8}, {-1e30, 1e30, std::nan(""), -inf, 1, 1, 1, 0});
  auto y = HostTensor::Poisoned(kF, {1, 4});
  ASSERT_OK(Forward(SwigluForward{.gate_up = gate_up, .y = y}, DefaultStream(Device::Cpu())));
  const std::vector<double> got = y.values();
  EXPECT_EQ(got[0], 0.0);
  EXPECT_NEAR(got[1] / 1e30, 1.0, 1e-6);
  EXPECT_TRUE(std::isnan(got[2]));  // a broken activation must be seen by the finite check
  EXPECT_TRUE(std::isnan(got[3]));  // -inf * 0, as PyTorch
}

TEST(SwigluTest, NamesTheWrongArgument) {
  const auto gate_up = HostTensor::Random(kF, {4, 7}, 1);
  auto y = HostTensor::Poisoned(kF, {4, 3});
  EXPECT_THAT(Forward(SwigluForward{.gate_up = gate_up, .y = y}, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("swiglu: gate_up")));
}

}  // namespace
}  // namespace sluice::kernels
