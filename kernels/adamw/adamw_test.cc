#include "kernels/adamw/adamw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/adamw/backends.h"
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
  int64_t step;
  double weight_decay, grad_scale;
  DType param;
};

constexpr Case kCases[] = {
    {1, 1, 0.0, 1.0, kF}, {1000, 1, 0.1, 1.0, kB}, {40001, 7, 0.01, 0.37, kB}, {33, 100000, 0.1, 1.0, kF}};

AdamWOptions OptionsOf(const Case& c) {
  return {.learning_rate = 1e-2,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .eps = 1e-8,
          .weight_decay = c.weight_decay,
          .step = c.step,
          .grad_scale = c.grad_scale};
}

struct State {
  explicit State(const Case& c)
      : master(HostTensor::Random(kF, {c.count}, 1)),
        exp_avg(HostTensor::Random(kF, {c.count}, 2, 0.1)),
        exp_avg_sq(HostTensor::Of(kF, {c.count}, Squares(HostTensor::Random(kF, {c.count}, 3, 0.1)))),
        grad(HostTensor::Random(kF, {c.count}, 4, 0.1)),
        param(HostTensor::Poisoned(c.param, {c.count})) {}

  static std::vector<double> Squares(const HostTensor& tensor) {
    std::vector<double> values = tensor.values();
    for (double& value : values) value *= value;
    return values;
  }

  AdamW Args(const AdamWOptions& options) {
    return {.master = master,
            .exp_avg = exp_avg,
            .exp_avg_sq = exp_avg_sq,
            .grad = grad,
            .param = param,
            .options = options};
  }

  HostTensor master, exp_avg, exp_avg_sq, grad, param;
};

class AdamWTest : public testing::BackendTest<Case> {};

TEST_P(AdamWTest, EqualsDoubleReference) {
  const auto& [c, backend] = GetParam();
  const AdamWOptions options = OptionsOf(c);
  State state(c);
  std::vector<double> p = state.master.values();
  std::vector<double> m = state.exp_avg.values();
  std::vector<double> v = state.exp_avg_sq.values();
  const std::vector<double> grads = state.grad.values();
  for (size_t i = 0; i < p.size(); ++i) {
    const double g = grads[i] * c.grad_scale;
    p[i] *= 1.0 - options.learning_rate * options.weight_decay;
    m[i] += (1.0 - options.beta1) * (g - m[i]);
    v[i] = options.beta2 * v[i] + (1.0 - options.beta2) * g * g;
    const double corrected = v[i] / (1.0 - std::pow(options.beta2, c.step));
    p[i] -=
        options.learning_rate / (1.0 - std::pow(options.beta1, c.step)) * m[i] / (std::sqrt(corrected) + options.eps);
  }
  ASSERT_OK(CALL_BACKEND(backend, Run, state.Args(options)));
  EXPECT_TENSOR_NEAR(state.master, p, ToleranceOf(kF));
  EXPECT_TENSOR_NEAR(state.exp_avg, m, ToleranceOf(kF));
  EXPECT_TENSOR_NEAR(state.exp_avg_sq, v, ToleranceOf(kF));
  // The parameter is the master rounded to nearest even, to the bit.
  std::vector<double> rounded = state.master.values();
  if (c.param == kB) {
    for (double& value : rounded) value = static_cast<float>(BFloat16(static_cast<float>(value)));
  }
  EXPECT_TENSOR_NEAR(state.param, rounded, (testing::Tolerance{0, 0}));
}

INSTANTIATE_TEST_SUITE_P(Shapes, AdamWTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

// Checkpoints are resharded and groups are slices: the same elements must move the same way wherever they lie.
TEST(AdamWTest, SplittingChangesNoBit) {
  const Case c = {1003, 3, 0.1, 0.5, kB};
  const AdamWOptions options = OptionsOf(c);
  const Stream cpu = DefaultStream(Device::Cpu());
  State whole(c);
  State split(c);
  ASSERT_OK(kernels::Run(whole.Args(options), cpu));
  int64_t begin = 0;
  for (const int64_t end : {1, 6, 517, 1003}) {
    AdamW args = split.Args(options);
    for (TensorView* view : {&args.master, &args.exp_avg, &args.exp_avg_sq, &args.param})
      *view = view->Rows(begin, end);
    args.grad = args.grad.Rows(begin, end);
    ASSERT_OK(kernels::Run(args, cpu));
    begin = end;
  }
  EXPECT_EQ(whole.master.bytes(), split.master.bytes());
  EXPECT_EQ(whole.exp_avg.bytes(), split.exp_avg.bytes());
  EXPECT_EQ(whole.exp_avg_sq.bytes(), split.exp_avg_sq.bytes());
  EXPECT_EQ(whole.param.bytes(), split.param.bytes());
}

TEST(AdamWTest, MasterMayBeTheParameter) {
  const Case c = {10, 1, 0.0, 1.0, kF};
  State state(c);
  AdamW args = state.Args(OptionsOf(c));
  args.param = {};
  ASSERT_OK(kernels::Run(args, DefaultStream(Device::Cpu())));
}

TEST(AdamWTest, NamesTheWrongArgument) {
  const Case c = {10, 0, 0.0, 1.0, kF};
  State state(c);
  EXPECT_THAT(kernels::Run(state.Args(OptionsOf(c)), DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("adamw: step: 0")));
  AdamW args = state.Args(OptionsOf(Case{10, 1, 0.0, 1.0, kF}));
  args.grad = args.grad.Rows(0, 9);
  EXPECT_THAT(kernels::Run(args, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("adamw: grad: expected fp32 [10]")));
}

}  // namespace
}  // namespace sluice::kernels
