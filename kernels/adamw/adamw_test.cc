#include "kernels/adamw/adamw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/adamw/backends.h"
#include "kernels/adamw/update.h"
#include "kernels/testing/tensors.h"

namespace sluice::kernels {
namespace {

using ::sluice::testing::StatusIs;
using testing::Backend;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::Tolerance;
using testing::ToleranceOf;

constexpr DType kF = DType::kFloat32;
constexpr DType kB = DType::kBFloat16;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum class Storage : uint8_t { kFloat, kExactMaster, kBFloat };

struct Case {
  int64_t count;
  int64_t updates;  // applied before
  double weight_decay;
  double max_norm;
  Storage param;
  DType moments;
};

// One element, less and more than a group of eight, several blocks; every way to store.
constexpr Case kCases[] = {
    {1, 0, 0.0, 0.0, Storage::kFloat, kF},          {1000, 0, 0.1, 0.0, Storage::kExactMaster, kF},
    {40001, 6, 0.01, 1.5, Storage::kFloat, kF},     {33, 99999, 0.1, 0.0, Storage::kFloat, kB},
    {4099, 3, 0.1, 1.0, Storage::kExactMaster, kB}, {2053, 3, 0.1, 1.0, Storage::kBFloat, kB},
    {24, 0, 0.0, 1.0, Storage::kBFloat, kF},
};

constexpr double kLearningRate = 1e-2;

AdamWOptions OptionsOf(const Case& c) {
  return {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = c.weight_decay, .seed = 77, .first_element = 0};
}

std::vector<double> Squares(const HostTensor& tensor) {
  std::vector<double> values = tensor.values();
  for (double& value : values) value *= value;
  return values;
}

// What a step reads and writes, in the storage of a case.
struct State {
  explicit State(const Case& c)
      : c(c),
        grad(HostTensor::Random(kF, {c.count}, 4, 0.1)),
        exp_avg(HostTensor::Random(c.moments, {c.count}, 2, 0.1)),
        exp_avg_sq(HostTensor::Of(c.moments, {c.count}, Squares(HostTensor::Random(kF, {c.count}, 3, 0.1)))),
        control(HostTensor::Of(kF, {kUpdateControls}, {0, 0, 0, static_cast<double>(c.updates), 0, 0, 0, 0})) {
    const auto master = HostTensor::Random(kF, {c.count}, 1);
    if (c.param == Storage::kFloat) param = master;
    if (c.param == Storage::kBFloat) param = HostTensor::Of(kB, {c.count}, master.values());
    if (c.param == Storage::kExactMaster) {
      param = HostTensor::Poisoned(kB, {c.count});
      remainder = HostTensor(DType::kInt16, {c.count});
      EXPECT_OK(cpu::Run(SplitMaster{.master = master, .param = param, .remainder = remainder}, Stream{}));
    }
    SetNorm(Norm());
  }

  double Norm() const {
    double sum = 0.0;
    for (const double g : grad.values()) sum += g * g;
    return std::sqrt(sum);
  }
  void SetNorm(double norm) { sum_of_squares = HostTensor::Of(DType::kFloat64, {1}, {norm * norm}); }

  DecideUpdate Decision() {
    const AdamWOptions options = OptionsOf(c);
    return {.sum_of_squares = sum_of_squares,
            .loss = loss,
            .learning_rate = learning_rate,
            .max_norm = c.max_norm,
            .beta1 = options.beta1,
            .beta2 = options.beta2,
            .control = control};
  }
  AdamW Args() {
    return {.control = control,
            .grad = grad,
            .param = param,
            .remainder = remainder,
            .exp_avg = exp_avg,
            .exp_avg_sq = exp_avg_sq,
            .options = OptionsOf(c)};
  }

  // The parameters in fp32, by the back end.
  std::vector<double> Master(Backend backend) {
    if (c.param != Storage::kExactMaster) return param.values();
    auto master = HostTensor::Poisoned(kF, {c.count});
    EXPECT_OK(CALL_BACKEND(backend, Run, (JoinMaster{.param = param, .remainder = remainder, .master = master})));
    return master.values();
  }

  Case c;
  HostTensor grad, param, remainder, exp_avg, exp_avg_sq, control, sum_of_squares;
  HostTensor loss = HostTensor::Of(DType::kFloat64, {1}, {2.5});
  HostTensor learning_rate = HostTensor::Of(DType::kFloat64, {1}, {kLearningRate});
};

void ExpectSameBytes(const State& got, const State& want) {
  EXPECT_EQ(got.param.bytes(), want.param.bytes());
  EXPECT_EQ(got.remainder.bytes(), want.remainder.bytes());
  EXPECT_EQ(got.exp_avg.bytes(), want.exp_avg.bytes());
  EXPECT_EQ(got.exp_avg_sq.bytes(), want.exp_avg_sq.bytes());
}

class AdamWTest : public testing::BackendTest<Case> {};

TEST_P(AdamWTest, EqualsDoubleReference) {
  const auto& [c, backend] = GetParam();
  const AdamWOptions options = OptionsOf(c);
  State state(c);
  std::vector<double> p = state.Master(backend);
  std::vector<double> m = state.exp_avg.values();
  std::vector<double> v = state.exp_avg_sq.values();
  const std::vector<double> grads = state.grad.values();
  const double norm = state.Norm();
  const double clip = c.max_norm > 0.0 ? std::min(1.0, c.max_norm / (norm + 1e-6)) : 1.0;
  const auto n = static_cast<double>(c.updates + 1);
  for (size_t i = 0; i < p.size(); ++i) {
    const double g = grads[i] * clip;
    p[i] *= 1.0 - kLearningRate * options.weight_decay;
    m[i] += (1.0 - options.beta1) * (g - m[i]);
    v[i] = options.beta2 * v[i] + (1.0 - options.beta2) * g * g;
    const double corrected = v[i] / (1.0 - std::pow(options.beta2, n));
    p[i] -= kLearningRate / (1.0 - std::pow(options.beta1, n)) * m[i] / (std::sqrt(corrected) + options.eps);
  }
  ASSERT_OK(CALL_BACKEND(backend, Run, state.Decision()));
  const std::vector<double> control = state.control.values();
  EXPECT_NEAR(control[kControlGradNorm] / norm, 1.0, 1e-6);
  EXPECT_NEAR(control[kControlClipFactor], clip, 1e-6);
  EXPECT_EQ(control[kControlApplies], 1.0);
  EXPECT_EQ(control[kControlUpdates], n);
  EXPECT_NEAR(control[kControlCorrection1], 1.0 - std::pow(options.beta1, n), 1e-6);
  EXPECT_NEAR(control[kControlRootCorrection2], std::sqrt(1.0 - std::pow(options.beta2, n)), 1e-6);

  ASSERT_OK(CALL_BACKEND(backend, Run, state.Args()));
  const Tolerance neighbour = {.relative = 1.0 / 128, .absolute = 1e-6};  // either of two bf16 values
  const Tolerance moment = c.moments == kF ? ToleranceOf(kF) : neighbour;
  EXPECT_TENSOR_NEAR(state.exp_avg, m, moment);
  EXPECT_TENSOR_NEAR(state.exp_avg_sq, v, moment);
  const auto master = HostTensor::Of(kF, {c.count}, state.Master(backend));
  EXPECT_TENSOR_NEAR(master, p, c.param == Storage::kBFloat ? neighbour : ToleranceOf(kF));
  EXPECT_TRUE(state.param.gaps_untouched());
  EXPECT_TRUE(c.param != Storage::kExactMaster || state.remainder.gaps_untouched());
}

// The same arithmetic and the same random bits everywhere.
TEST_P(AdamWTest, EqualsTheReferenceToTheBit) {
  const auto& [c, backend] = GetParam();
  State got(c), want(c);
  ASSERT_OK(cpu::Run(want.Decision(), Stream{}));
  got.control = want.control;
  ASSERT_OK(CALL_BACKEND(backend, Run, got.Args()));
  ASSERT_OK(cpu::Run(want.Args(), Stream{}));
  ExpectSameBytes(got, want);
}

TEST_P(AdamWTest, SkipsWhatIsNotFinite) {
  const auto& [c, backend] = GetParam();
  struct {
    double sum, loss;
  } const steps[] = {{kNan, 1.0}, {kInfinity, 1.0}, {1e80, 1.0}, {4.0, kNan}, {4.0, -kInfinity}};
  for (const auto& step : steps) {
    State state(c);
    const State before = state;
    state.sum_of_squares = HostTensor::Of(DType::kFloat64, {1}, {step.sum});
    state.loss = HostTensor::Of(DType::kFloat64, {1}, {step.loss});
    ASSERT_OK(CALL_BACKEND(backend, Run, state.Decision()));
    const std::vector<double> control = state.control.values();
    EXPECT_FALSE(std::isfinite(control[kControlGradNorm])) << step.sum << " " << step.loss;
    EXPECT_EQ(control[kControlApplies], 0.0);
    EXPECT_EQ(control[kControlUpdates], static_cast<double>(c.updates));
    ASSERT_OK(CALL_BACKEND(backend, Run, state.Args()));
    ExpectSameBytes(state, before);
  }
}

// Checkpoints are resharded and groups are slices: the same elements must move the same way wherever they lie.
TEST_P(AdamWTest, SplittingChangesNoBit) {
  const auto& [c, backend] = GetParam();
  State whole(c), split(c);
  ASSERT_OK(CALL_BACKEND(backend, Run, whole.Decision()));
  split.control = whole.control;
  ASSERT_OK(CALL_BACKEND(backend, Run, whole.Args()));
  int64_t begin = 0;
  for (const int64_t boundary : {int64_t{8}, int64_t{24}, int64_t{520}, c.count}) {
    const int64_t end = std::min(boundary, c.count);
    if (end == begin) continue;
    AdamW args = split.Args();
    args.options.first_element = begin;
    args.grad = args.grad.Rows(begin, end);
    for (TensorView* view : {&args.param, &args.remainder, &args.exp_avg, &args.exp_avg_sq}) {
      if (!view->empty()) *view = view->Rows(begin, end);
    }
    ASSERT_OK(CALL_BACKEND(backend, Run, args));
    begin = end;
  }
  ExpectSameBytes(split, whole);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AdamWTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

class MasterTest : public testing::BackendTest<int> {};

// Finite values of every exponent and both signs, on, just below and just above the middle between two bf16 values.
std::vector<float> ValuesNearTies() {
  std::vector<float> values;
  for (uint32_t high = 0; high < 0x10000u; high += 0x3Fu) {
    if ((high & 0x7F80u) == 0x7F80u) continue;
    for (const uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  return values;
}

TEST_P(MasterTest, SplitThenJoinIsExact) {
  const Backend backend = std::get<1>(GetParam());
  const std::vector<float> values = ValuesNearTies();
  const auto count = static_cast<int64_t>(values.size());
  const auto master = HostTensor::Of(kF, {count}, {values.begin(), values.end()});
  auto param = HostTensor::Poisoned(kB, {count});
  HostTensor remainder(DType::kInt16, {count});
  auto joined = HostTensor::Poisoned(kF, {count});
  ASSERT_OK(CALL_BACKEND(backend, Run, (SplitMaster{.master = master, .param = param, .remainder = remainder})));
  ASSERT_OK(CALL_BACKEND(backend, Run, (JoinMaster{.param = param, .remainder = remainder, .master = joined})));
  EXPECT_EQ(joined.bytes(), master.bytes());
  // Nearest, ties away from zero: half a unit more or less never reaches the next value.
  const std::vector<double> got = param.values();
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t word = std::bit_cast<uint32_t>(values[i]);
    const auto down = std::bit_cast<float>(word & 0xFFFF0000u);
    const auto up = std::bit_cast<float>((word & 0xFFFF0000u) + 0x10000u);
    ASSERT_EQ(got[i], (word & 0xFFFFu) >= 0x8000u ? up : down) << values[i];
  }
}

TEST_P(MasterTest, NanStaysNan) {
  const Backend backend = std::get<1>(GetParam());
  const auto master = HostTensor::Of(kF, {3}, {kNan, -kNan, -kInfinity});
  auto param = HostTensor::Poisoned(kB, {3});
  HostTensor remainder(DType::kInt16, {3});
  auto joined = HostTensor::Poisoned(kF, {3});
  ASSERT_OK(CALL_BACKEND(backend, Run, (SplitMaster{.master = master, .param = param, .remainder = remainder})));
  ASSERT_OK(CALL_BACKEND(backend, Run, (JoinMaster{.param = param, .remainder = remainder, .master = joined})));
  for (const HostTensor* tensor : {&param, &joined}) {
    EXPECT_TRUE(std::isnan(tensor->values()[0]) && std::isnan(tensor->values()[1]));
    EXPECT_EQ(tensor->values()[2], -kInfinity);
  }
}

// The 4-byte master loses nothing against an fp32 one, step after step.
TEST_P(MasterTest, ExactMasterFollowsAnFp32One) {
  const Backend backend = std::get<1>(GetParam());
  std::vector<double> start = HostTensor::Random(kF, {2000}, 5).values();
  for (uint32_t i = 0; i < 64; ++i) start[i] = std::bit_cast<float>(0x3F800000u + i * 0x8000u) * (i % 4 < 2 ? 1 : -1);
  const Case c = {2000, 0, 0.1, 1.0, Storage::kFloat, kF};
  State single(c), exact({2000, 0, 0.1, 1.0, Storage::kExactMaster, kF});
  single.param = HostTensor::Of(kF, {c.count}, start);
  ASSERT_OK(CALL_BACKEND(backend, Run,
                         (SplitMaster{.master = single.param, .param = exact.param, .remainder = exact.remainder})));
  for (uint64_t step = 0; step < 5; ++step) {
    single.grad = exact.grad = HostTensor::Random(kF, {c.count}, 10 + step, 0.1);
    ASSERT_OK(CALL_BACKEND(backend, Run, single.Decision()));
    exact.control = single.control;
    ASSERT_OK(CALL_BACKEND(backend, Run, single.Args()));
    ASSERT_OK(CALL_BACKEND(backend, Run, exact.Args()));
    ASSERT_EQ(exact.Master(backend), single.param.values()) << "step " << step;
  }
  EXPECT_NE(single.param.values(), start);
}

// Rounding moves no value on average: over the seeds, the means of parameter and moments are those of an fp32 step.
TEST_P(MasterTest, StochasticRoundingIsUnbiased) {
  const Backend backend = std::get<1>(GetParam());
  const int64_t kSeeds = 1024;
  const Case c = {11, 2, 0.1, 0.0, Storage::kBFloat, kB};
  State single(c);  // the same values, updated in fp32
  for (HostTensor* tensor : {&single.param, &single.exp_avg, &single.exp_avg_sq}) {
    *tensor = HostTensor::Of(kF, {c.count}, tensor->values());
  }
  ASSERT_OK(CALL_BACKEND(backend, Run, single.Decision()));
  ASSERT_OK(CALL_BACKEND(backend, Run, single.Args()));
  const std::vector<double> want[] = {single.param.values(), single.exp_avg.values(), single.exp_avg_sq.values()};
  std::vector<double> sums[3];
  for (auto& sum : sums) sum.resize(static_cast<size_t>(c.count));
  State first(c);
  first.control = single.control;
  bool differ = false;
  for (int64_t seed = 0; seed < kSeeds; ++seed) {
    State state = first;
    AdamW args = state.Args();
    args.options.seed = static_cast<uint64_t>(seed);
    ASSERT_OK(CALL_BACKEND(backend, Run, args));
    const std::vector<double> got[] = {state.param.values(), state.exp_avg.values(), state.exp_avg_sq.values()};
    for (int which = 0; which < 3; ++which) {
      for (size_t i = 0; i < sums[which].size(); ++i) {
        sums[which][i] += got[which][i];
        differ |= got[which][i] != want[which][i];
      }
    }
  }
  EXPECT_TRUE(differ);
  for (int which = 0; which < 3; ++which) {
    for (size_t i = 0; i < sums[which].size(); ++i) {
      // The deviation of one rounding is at most half a unit, 2^-8; five times that of the mean.
      const double bound = 5.0 * std::abs(want[which][i]) / 256 / std::sqrt(static_cast<double>(kSeeds));
      EXPECT_NEAR(sums[which][i] / static_cast<double>(kSeeds), want[which][i], bound) << which << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MasterTest,
                         ::testing::Combine(::testing::Values(0), ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(RoundStochasticallyTest, KeepsWhatItMust) {
  const auto rounded = [](float value, uint32_t random) {
    BFloat16 result;
    result.bits = RoundStochastically(value, random);
    return static_cast<float>(result);
  };
  const float largest = std::numeric_limits<float>::max();
  const float largest_bf16 = std::bit_cast<float>(0x7F7F0000u);
  for (const uint32_t random : {0u, 1u, 0x8000u, 0xFFFFu}) {
    for (const float held : {0.0f, 1.0f, -3.5f, largest_bf16, static_cast<float>(-kInfinity)}) {
      EXPECT_EQ(rounded(held, random), held) << random;
    }
    EXPECT_TRUE(std::signbit(rounded(-0.0f, random)));
    EXPECT_EQ(rounded(largest, random), largest_bf16);
    EXPECT_EQ(rounded(-largest, random), -largest_bf16);
    EXPECT_TRUE(std::isnan(rounded(static_cast<float>(kNan), random)));
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0xFFFFFFFFu), random)));
    EXPECT_TRUE(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN(), random)));
  }
  // A quarter of the way up: a quarter of the random numbers carry it there.
  const auto quarter = std::bit_cast<float>(0x3F804000u);
  int up = 0;
  for (uint32_t random = 0; random < 0x10000u; ++random) up += rounded(quarter, random) > 1.0f;
  EXPECT_EQ(up, 0x4000);
}

TEST(AdamWChecksTest, NamesTheWrongArgument) {
  const Stream cpu = DefaultStream(Device::Cpu());
  State state({10, 0, 0.0, 1.0, Storage::kExactMaster, kF});
  const AdamW good = state.Args();
  ASSERT_OK(kernels::Run(good, cpu));
  const auto expect = [&](const AdamW& args, const char* message) {
    EXPECT_THAT(kernels::Run(args, cpu), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  AdamW args = good;
  args.grad = args.grad.Rows(0, 9);
  expect(args, "adamw: grad: expected fp32 [10]");
  args = good;
  args.options.first_element = 4;
  expect(args, "adamw: first_element: 4");
  args = good;
  HostTensor other = HostTensor::Random(kB, {10}, 1);
  args.exp_avg_sq = other;
  expect(args, "adamw: exp_avg_sq: expected fp32 [10]");
  args = good;
  HostTensor wide = HostTensor::Random(kF, {10}, 1);
  args.param = wide;
  expect(args, "adamw: remainder");
  args = good;
  args.options.beta2 = 1.0;
  expect(args, "adamw: beta2: 1");

  DecideUpdate decision = state.Decision();
  ASSERT_OK(kernels::Run(decision, cpu));
  decision.max_norm = -1.0;
  EXPECT_THAT(kernels::Run(decision, cpu),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("decide_update: max_norm: -1")));
}

}  // namespace
}  // namespace sluice::kernels
