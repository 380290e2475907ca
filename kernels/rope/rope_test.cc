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
constexpr float kEps = 1e-6f;

struct Case {
  int64_t tokens, q_heads, kv_heads, head_dim;
  DType dtype;
  bool norms;
  float scaling;

  int64_t all_heads() const { return q_heads + 2 * kv_heads; }
  Shape packed() const { return {tokens, all_heads() * head_dim}; }
  Shape q_shape() const { return {tokens, q_heads, head_dim}; }
  Shape kv_shape() const { return {tokens, kv_heads, head_dim}; }
};

// Published head layouts, head sizes that are no power of two or barely legal, and token counts that fill no tile.
constexpr Case kCases[] = {
    {1, 1, 1, 2, kF, false, 1.0f},     {40, 9, 3, 64, kF, false, 1.0f}, {33, 4, 2, 128, kB, false, 1.0f},
    {17, 2, 1, 80, kF, false, 1.25f},  {5, 14, 2, 64, kB, false, 0.5f}, {1, 1, 1, 2, kF, true, 1.0f},
    {40, 16, 8, 128, kB, true, 1.0f},  {33, 4, 2, 128, kF, true, 1.0f}, {17, 2, 1, 80, kB, true, 1.25f},
    {611, 3, 1, 64, kB, true, 1.0f},   {5, 2, 1, 256, kF, true, 1.0f},  {11, 5, 5, 16, kB, true, 1.0f},
    {2500, 2, 1, 32, kF, false, 1.0f},
};

class RopeTest : public testing::BackendTest<Case> {};

// Positions restart, as in packed sequences, and go far: fp32 angles are part of the contract.
HostTensor Positions(const Case& c) {
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < c.tokens; ++t) positions.push_back(static_cast<int32_t>(t % 7 == 0 ? 31000 + t : t % 19));
  return HostTensor::OfInts(positions);
}

HostTensor InvFreq(const Case& c) {
  std::vector<double> inv_freq;
  for (int64_t i = 0; i < c.head_dim / 2; ++i) {
    inv_freq.push_back(std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim)));
  }
  return HostTensor::Of(kF, {c.head_dim / 2}, inv_freq);
}

std::vector<double> CosSin(const Case& c) {
  const std::vector<double> positions = Positions(c).values();
  const std::vector<double> inv_freq = InvFreq(c).values();
  const int64_t half = c.head_dim / 2;
  std::vector<double> table(static_cast<size_t>(c.tokens * c.head_dim));
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(positions[t]) * static_cast<float>(inv_freq[i]);
      table[t * c.head_dim + i] = std::cos(angle) * c.scaling;
      table[t * c.head_dim + half + i] = std::sin(angle) * c.scaling;
    }
  }
  return table;
}

// Heads first..first+count-1 of the packed [T, heads, D], as [T, count, D].
std::vector<double> TakeHeads(const std::vector<double>& packed, const Case& c, int64_t first, int64_t count) {
  std::vector<double> heads;
  for (int64_t t = 0; t < c.tokens; ++t) {
    const auto from = packed.begin() + (t * c.all_heads() + first) * c.head_dim;
    heads.insert(heads.end(), from, from + count * c.head_dim);
  }
  return heads;
}

std::vector<double> PackHeads(const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
                              const Case& c) {
  std::vector<double> packed;
  const auto append = [&](const std::vector<double>& heads, int64_t token, int64_t count) {
    const auto from = heads.begin() + token * count * c.head_dim;
    packed.insert(packed.end(), from, from + count * c.head_dim);
  };
  for (int64_t t = 0; t < c.tokens; ++t) {
    append(q, t, c.q_heads);
    append(k, t, c.kv_heads);
    append(v, t, c.kv_heads);
  }
  return packed;
}

// `direction` is 1 forward, -1 backward.
void Rotate(std::vector<double>& x, const std::vector<double>& cos_sin, int64_t heads, const Case& c,
            double direction) {
  const int64_t half = c.head_dim / 2;
  for (int64_t row = 0; row < c.tokens * heads; ++row) {
    const double* cosines = cos_sin.data() + row / heads * c.head_dim;
    for (int64_t i = 0; i < half; ++i) {
      double& first = x[row * c.head_dim + i];
      double& second = x[row * c.head_dim + half + i];
      const double a = first;
      first = a * cosines[i] - second * cosines[half + i] * direction;
      second = second * cosines[i] + a * cosines[half + i] * direction;
    }
  }
}

std::vector<double> RstdOf(const std::vector<double>& x, const Case& c) {
  std::vector<double> rstd;
  for (size_t at = 0; at < x.size(); at += c.head_dim) {
    double sum = 0.0;
    for (int64_t i = 0; i < c.head_dim; ++i) sum += x[at + i] * x[at + i];
    rstd.push_back(1.0 / std::sqrt(sum / static_cast<double>(c.head_dim) + kEps));
  }
  return rstd;
}

void Normalise(std::vector<double>& x, const std::vector<double>& rstd, const std::vector<double>& weight) {
  for (size_t i = 0; i < x.size(); ++i) x[i] *= rstd[i / weight.size()] * weight[i % weight.size()];
}

// From the gradient of the normalised heads to that of `x`; adds to dweight.
void NormBackward(std::vector<double>& gradient, const std::vector<double>& x, const std::vector<double>& rstd,
                  const std::vector<double>& weight, std::vector<double>& dweight) {
  const size_t dim = weight.size();
  for (size_t row = 0; row < rstd.size(); ++row) {
    const size_t at = row * dim;
    double mean = 0.0;
    for (size_t i = 0; i < dim; ++i) {
      mean += gradient[at + i] * weight[i] * x[at + i] * rstd[row] / static_cast<double>(dim);
    }
    for (size_t i = 0; i < dim; ++i) {
      const double normalised = x[at + i] * rstd[row];
      dweight[i] += gradient[at + i] * normalised;
      gradient[at + i] = rstd[row] * (gradient[at + i] * weight[i] - normalised * mean);
    }
  }
}

TEST_P(RopeTest, TableHoldsTheAngles) {
  const auto& [c, backend] = GetParam();
  const HostTensor positions = Positions(c);
  const HostTensor inv_freq = InvFreq(c);
  auto cos_sin = HostTensor::Poisoned(kF, {c.tokens, c.head_dim});
  const RotaryTable args = {
      .positions = positions, .inv_freq = inv_freq, .attention_scaling = c.scaling, .cos_sin = cos_sin};
  ASSERT_OK(CALL_BACKEND(backend, Run, args));
  EXPECT_TENSOR_NEAR(cos_sin, CosSin(c), (testing::Tolerance{.relative = 3e-7, .absolute = 3e-7}));
}

TEST_P(RopeTest, ForwardEqualsDoubleReference) {
  const auto& [c, backend] = GetParam();
  const auto qkv = HostTensor::Random(c.dtype, c.packed(), 1);
  const auto cos_sin = HostTensor::Of(kF, {c.tokens, c.head_dim}, CosSin(c));
  const auto q_norm = c.norms ? HostTensor::Random(c.dtype, {c.head_dim}, 2) : HostTensor();
  const auto k_norm = c.norms ? HostTensor::Random(c.dtype, {c.head_dim}, 3) : HostTensor();
  auto q_rstd = c.norms ? HostTensor::Poisoned(kF, {c.tokens, c.q_heads}) : HostTensor();
  auto k_rstd = c.norms ? HostTensor::Poisoned(kF, {c.tokens, c.kv_heads}) : HostTensor();
  auto q = HostTensor::Poisoned(c.dtype, c.q_shape());
  auto k = HostTensor::Poisoned(c.dtype, c.kv_shape());
  auto v = HostTensor::Poisoned(c.dtype, c.kv_shape());
  const RopeForward args = {.qkv = qkv,
                            .cos_sin = cos_sin,
                            .q_norm = q_norm,
                            .k_norm = k_norm,
                            .eps = c.norms ? kEps : 0.0f,
                            .q_rstd = q_rstd,
                            .k_rstd = k_rstd,
                            .q = q,
                            .k = k,
                            .v = v};
  ASSERT_OK(CALL_BACKEND(backend, Forward, args));

  const std::vector<double> packed = qkv.values();
  std::vector<double> want_q = TakeHeads(packed, c, 0, c.q_heads);
  std::vector<double> want_k = TakeHeads(packed, c, c.q_heads, c.kv_heads);
  if (c.norms) {
    const std::vector<double> want_q_rstd = RstdOf(want_q, c);
    const std::vector<double> want_k_rstd = RstdOf(want_k, c);
    Normalise(want_q, want_q_rstd, q_norm.values());
    Normalise(want_k, want_k_rstd, k_norm.values());
    EXPECT_TENSOR_NEAR(q_rstd, want_q_rstd, ToleranceOf(kF));
    EXPECT_TENSOR_NEAR(k_rstd, want_k_rstd, ToleranceOf(kF));
  }
  Rotate(want_q, cos_sin.values(), c.q_heads, c, 1.0);
  Rotate(want_k, cos_sin.values(), c.kv_heads, c, 1.0);
  EXPECT_TENSOR_NEAR(q, want_q, ToleranceOf(c.dtype));
  EXPECT_TENSOR_NEAR(k, want_k, ToleranceOf(c.dtype));
  EXPECT_EQ(v.values(), TakeHeads(packed, c, c.q_heads + c.kv_heads, c.kv_heads));
}

TEST_P(RopeTest, BackwardEqualsDoubleReferenceInPlaceToo) {
  const auto& [c, backend] = GetParam();
  const auto dq = HostTensor::Random(c.dtype, c.q_shape(), 1);
  const auto dk = HostTensor::Random(c.dtype, c.kv_shape(), 2);
  const auto dv = HostTensor::Random(c.dtype, c.kv_shape(), 3);
  const auto cos_sin = HostTensor::Of(kF, {c.tokens, c.head_dim}, CosSin(c));
  std::vector<double> want_dq = dq.values();
  std::vector<double> want_dk = dk.values();
  Rotate(want_dq, cos_sin.values(), c.q_heads, c, -1.0);
  Rotate(want_dk, cos_sin.values(), c.kv_heads, c, -1.0);
  RopeBackward args = {.dq = dq, .dk = dk, .dv = dv, .cos_sin = cos_sin};

  auto qkv = HostTensor::Random(c.dtype, c.packed(), 4);
  const auto q_norm = HostTensor::Random(c.dtype, {c.head_dim}, 5);
  const auto k_norm = HostTensor::Random(c.dtype, {c.head_dim}, 6);
  auto dq_norm = HostTensor::Random(kF, {c.head_dim}, 7);
  auto dk_norm = HostTensor::Random(kF, {c.head_dim}, 8);
  std::vector<double> want_dq_norm = dq_norm.values();
  std::vector<double> want_dk_norm = dk_norm.values();
  const std::vector<double> x_q = TakeHeads(qkv.values(), c, 0, c.q_heads);
  const std::vector<double> x_k = TakeHeads(qkv.values(), c, c.q_heads, c.kv_heads);
  const auto q_rstd = HostTensor::Of(kF, {c.tokens, c.q_heads}, RstdOf(x_q, c));
  const auto k_rstd = HostTensor::Of(kF, {c.tokens, c.kv_heads}, RstdOf(x_k, c));
  if (c.norms) {
    NormBackward(want_dq, x_q, RstdOf(x_q, c), q_norm.values(), want_dq_norm);
    NormBackward(want_dk, x_k, RstdOf(x_k, c), k_norm.values(), want_dk_norm);
    args.qkv = qkv;
    args.q_norm = q_norm;
    args.k_norm = k_norm;
    args.q_rstd = q_rstd;
    args.k_rstd = k_rstd;
    args.dq_norm = dq_norm;
    args.dk_norm = dk_norm;
  }
  auto dqkv = HostTensor::Poisoned(c.dtype, c.packed());
  args.dqkv = dqkv;
  ASSERT_OK(CALL_BACKEND(backend, Backward, args));
  testing::Tolerance tolerance = ToleranceOf(c.dtype);
  if (c.norms) tolerance.absolute *= 10.0;  // a head with a large rstd magnifies the rounding of its sum
  EXPECT_TENSOR_NEAR(dqkv, PackHeads(want_dq, want_dk, dv.values(), c), tolerance);
  if (!c.norms) return;
  const double terms = 4.0 * static_cast<double>(c.tokens * c.q_heads);
  EXPECT_TENSOR_NEAR(dq_norm, want_dq_norm, SumTolerance(kF, terms));
  EXPECT_TENSOR_NEAR(dk_norm, want_dk_norm, SumTolerance(kF, terms));

  args.dqkv = qkv;
  ASSERT_OK(CALL_BACKEND(backend, Backward, args));
  EXPECT_EQ(qkv.values(), dqkv.values());
}

INSTANTIATE_TEST_SUITE_P(Shapes, RopeTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(RopeTest, NamesTheWrongArgument) {
  const Stream cpu = DefaultStream(Device::Cpu());
  const auto positions = HostTensor::OfInts({0, 1, 2, 3});
  const auto short_table = HostTensor::Random(kF, {3}, 2);
  auto cos_sin = HostTensor::Random(kF, {4, 8}, 1);
  EXPECT_THAT(kernels::Run(RotaryTable{.positions = positions, .inv_freq = short_table, .cos_sin = cos_sin}, cpu),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rotary_table: inv_freq: expected fp32 [4]")));

  const auto qkv = HostTensor::Random(kF, {4, 32}, 3);
  const auto norm = HostTensor::Random(kF, {8}, 3);
  auto q = HostTensor::Poisoned(kF, {4, 2, 8});
  auto k = HostTensor::Poisoned(kF, {4, 1, 8});
  auto v = HostTensor::Poisoned(kF, {4, 1, 8});
  const RopeForward good = {.qkv = qkv, .cos_sin = cos_sin, .q = q, .k = k, .v = v};
  ASSERT_OK(Forward(good, cpu));
  const auto expect = [&](const RopeForward& args, const char* message) {
    EXPECT_THAT(Forward(args, cpu), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  RopeForward args = good;
  args.v = q;
  expect(args, "rope: v: expected fp32 [4, 1, 8]");
  args = good;
  args.q_norm = norm;
  expect(args, "rope: k_norm: expected fp32 [8]");
  args = good;
  args.cos_sin = qkv;
  expect(args, "rope: cos_sin: expected fp32 [4, 8]");
  args = good;
  auto odd = HostTensor::Poisoned(kF, {4, 2, 7});
  args.q = odd;
  expect(args, "rope: q: its head size 7 is odd");
}

}  // namespace
}  // namespace sluice::kernels
