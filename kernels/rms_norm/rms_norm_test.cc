#include "kernels/rms_norm/rms_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/rms_norm/backends.h"
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
  int64_t tokens, heads, hidden;  // heads 0: [T, H]
  DType dtype;
  bool residual;
  int64_t padding;

  Shape shape() const { return heads > 0 ? Shape{tokens, heads, hidden} : Shape{tokens, hidden}; }
  Shape rows_shape() const { return heads > 0 ? Shape{tokens, heads} : Shape{tokens}; }
  int64_t rows() const { return tokens * std::max<int64_t>(heads, 1); }
  int64_t stride() const { return shape().row_elements() + padding; }
};

// The published hidden sizes, one that is barely legal, a token count that fills no tile, and per-head norms in a
// packed matrix.
constexpr Case kCases[] = {
    {1, 0, 8, kF, false, 0},
    {7, 0, 896, kB, true, 0},
    {203, 0, 576, kB, false, 0},
    {33, 0, 4096, kB, true, 0},
    {5, 0, 16384, kF, true, 0},
    {64, 0, 576, kF, true, 16},
    {20, 3, 128, kF, false, 256},
    {9, 2, 64, kB, false, 64},
    // For the GPU: rows that do not start at multiples of 16 bytes, more rows than are in flight at once, and rows for
    // half a block and for a whole one.
    {9, 0, 64, kB, true, 3},
    {2500, 0, 512, kB, true, 0},
    {700, 0, 2056, kB, true, 8},
    {7, 0, 16384, kB, true, 0},
    {3, 0, 6144, kF, false, 0},
    {7, 0, 9216, kB, false, 0},
};

constexpr float kEps = 1e-5f;

class RmsNormTest : public testing::BackendTest<Case> {};

double RstdOf(const std::vector<double>& r, int64_t row, int64_t hidden) {
  double sum = 0.0;
  for (int64_t i = 0; i < hidden; ++i) sum += r[row * hidden + i] * r[row * hidden + i];
  return 1.0 / std::sqrt(sum / static_cast<double>(hidden) + kEps);
}

TEST_P(RmsNormTest, ForwardEqualsDoubleReference) {
  const auto& [c, backend] = GetParam();
  const auto x = HostTensor::Random(c.dtype, c.shape(), 1, 1.0, c.stride());
  const auto residual = c.residual ? HostTensor::Random(c.dtype, c.shape(), 2, 2.0, c.stride()) : HostTensor();
  const auto weight = HostTensor::Random(c.dtype, {c.hidden}, 3);
  auto residual_out = c.residual ? HostTensor::Poisoned(c.dtype, c.shape(), c.stride()) : HostTensor();
  auto y = HostTensor::Poisoned(c.dtype, c.shape(), c.stride());
  auto rstd = HostTensor::Poisoned(kF, c.rows_shape());
  const RmsNormForward args = {
      .x = x, .residual = residual, .weight = weight, .eps = kEps, .residual_out = residual_out, .y = y, .rstd = rstd};
  ASSERT_OK(CALL_BACKEND(backend, Forward, args));

  std::vector<double> r = x.values();
  if (c.residual) {
    const std::vector<double> add = residual.values();
    for (size_t i = 0; i < r.size(); ++i) r[i] += add[i];
    EXPECT_TENSOR_NEAR(residual_out, r, ToleranceOf(c.dtype));
    r = residual_out.values();  // statistics are of the rounded r
  }
  const std::vector<double> weights = weight.values();
  std::vector<double> want_rstd(static_cast<size_t>(c.rows()));
  std::vector<double> want_y(r.size());
  for (int64_t row = 0; row < c.rows(); ++row) {
    want_rstd[row] = RstdOf(r, row, c.hidden);
    for (int64_t i = 0; i < c.hidden; ++i) {
      want_y[row * c.hidden + i] = r[row * c.hidden + i] * want_rstd[row] * weights[i];
    }
  }
  EXPECT_TENSOR_NEAR(y, want_y, ToleranceOf(c.dtype));
  EXPECT_TENSOR_NEAR(rstd, want_rstd, ToleranceOf(kF));
}

TEST_P(RmsNormTest, BackwardAccumulates) {
  const auto& [c, backend] = GetParam();
  const auto dy = HostTensor::Random(c.dtype, c.shape(), 1, 1.0, c.stride());
  const auto r = HostTensor::Random(c.dtype, c.shape(), 2, 2.0, c.stride());
  const auto weight = HostTensor::Random(c.dtype, {c.hidden}, 3);
  const std::vector<double> dys = dy.values();
  const std::vector<double> rs = r.values();
  const std::vector<double> weights = weight.values();
  std::vector<double> rstds(static_cast<size_t>(c.rows()));
  for (int64_t row = 0; row < c.rows(); ++row) rstds[row] = RstdOf(rs, row, c.hidden);
  const auto rstd = HostTensor::Of(kF, c.rows_shape(), rstds);
  auto dr = HostTensor::Random(c.dtype, c.shape(), 4, 1.0, c.stride());  // not zero: accumulation is the contract
  auto dweight = HostTensor::Random(kF, {c.hidden}, 5);
  auto y = HostTensor::Poisoned(c.dtype, c.shape(), c.stride());

  std::vector<double> want_y(dys.size());
  std::vector<double> want_dr = dr.values();
  std::vector<double> want_dweight = dweight.values();
  for (int64_t row = 0; row < c.rows(); ++row) {
    const int64_t at = row * c.hidden;
    double sum = 0.0;
    for (int64_t i = 0; i < c.hidden; ++i) sum += dys[at + i] * weights[i] * rs[at + i];
    for (int64_t i = 0; i < c.hidden; ++i) {
      want_dr[at + i] += rstds[row] * dys[at + i] * weights[i] -
                         std::pow(rstds[row], 3) * rs[at + i] * sum / static_cast<double>(c.hidden);
      want_dweight[i] += dys[at + i] * rs[at + i] * rstds[row];
      want_y[at + i] = rs[at + i] * rstds[row] * weights[i];
    }
  }
  RmsNormBackward args = {.dy = dy, .r = r, .weight = weight, .rstd = rstd, .dr = dr, .dweight = dweight, .y = y};
  ASSERT_OK(CALL_BACKEND(backend, Backward, args));
  EXPECT_TENSOR_NEAR(dr, want_dr, ToleranceOf(c.dtype));
  EXPECT_TENSOR_NEAR(dweight, want_dweight, SumTolerance(kF, 4.0 * static_cast<double>(c.rows())));
  EXPECT_TENSOR_NEAR(y, want_y, ToleranceOf(c.dtype));

  // A frozen weight, and a y that was kept.
  const std::vector<double> dr_once = dr.values();
  auto again = HostTensor::Random(c.dtype, c.shape(), 4, 1.0, c.stride());
  args.dr = again;
  args.dweight = args.y = TensorView::Empty();
  ASSERT_OK(CALL_BACKEND(backend, Backward, args));
  EXPECT_EQ(again.values(), dr_once);
}

TEST_P(RmsNormTest, BackwardGivesForwardsY) {
  const auto& [c, backend] = GetParam();
  const auto x = HostTensor::Random(c.dtype, c.shape(), 1, 1.0, c.stride());
  const auto weight = HostTensor::Random(c.dtype, {c.hidden}, 3);
  auto y = HostTensor::Poisoned(c.dtype, c.shape(), c.stride());
  auto y_again = HostTensor::Poisoned(c.dtype, c.shape(), c.stride());
  auto rstd = HostTensor::Poisoned(kF, c.rows_shape());
  auto dr = HostTensor::Random(c.dtype, c.shape(), 4, 1.0, c.stride());
  const RmsNormForward forward = {.x = x, .weight = weight, .eps = kEps, .y = y, .rstd = rstd};
  const RmsNormBackward backward = {.dy = x, .r = x, .weight = weight, .rstd = rstd, .dr = dr, .y = y_again};
  ASSERT_OK(CALL_BACKEND(backend, Forward, forward));
  ASSERT_OK(CALL_BACKEND(backend, Backward, backward));
  EXPECT_EQ(y_again.values(), y.values());  // bit for bit: a recomputed activation is the activation
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNormTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(RmsNormTest, ResidualMayBeUpdatedInPlace) {
  const auto x = HostTensor::Random(kF, {4, 16}, 1);
  auto residual = HostTensor::Random(kF, {4, 16}, 2);
  const auto weight = HostTensor::Random(kF, {16}, 3);
  std::vector<double> want = residual.values();
  for (size_t i = 0; i < want.size(); ++i) want[i] += x.values()[i];
  auto y = HostTensor::Poisoned(kF, {4, 16});
  auto rstd = HostTensor::Poisoned(kF, {4});
  ASSERT_OK(Forward(
      RmsNormForward{
          .x = x, .residual = residual, .weight = weight, .eps = kEps, .residual_out = residual, .y = y, .rstd = rstd},
      DefaultStream(Device::Cpu())));
  EXPECT_TENSOR_NEAR(residual, want, ToleranceOf(kF));
}

TEST(RmsNormTest, NamesTheWrongArgument) {
  const auto x = HostTensor::Random(kF, {4, 16}, 1);
  const auto weight = HostTensor::Random(kF, {16}, 3);
  auto y = HostTensor::Poisoned(kF, {4, 16});
  auto rstd = HostTensor::Poisoned(kF, {4});
  const RmsNormForward good = {.x = x, .weight = weight, .eps = kEps, .y = y, .rstd = rstd};
  const auto expect = [](const RmsNormForward& args, const char* message) {
    EXPECT_THAT(Forward(args, DefaultStream(Device::Cpu())),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  RmsNormForward args = good;
  args.rstd = TensorView::Empty();
  expect(args, "rms_norm: rstd");
  args = good;
  args.eps = 0;
  expect(args, "rms_norm: eps");
  args = good;
  args.residual_out = y;
  expect(args, "rms_norm: residual_out");
  args = good;
  args.x = x.view().Columns(0, 12);
  expect(args, "rms_norm: x: its last dimension 12");
  args = good;
  EXPECT_THAT(Forward(args, DefaultStream(Device::Cuda(0))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("on cuda:0, got fp32 [4, 16] on cpu")));
}

}  // namespace
}  // namespace sluice::kernels
