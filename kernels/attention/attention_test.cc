#include "kernels/attention/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/attention/backends.h"
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
  std::vector<int32_t> cu_seqlens;
  int64_t tail;  // slots behind the last sequence
  int64_t q_heads, kv_heads, head_dim;
  DType dtype;
  int64_t window;
  bool packed;  // q, k and v are columns of one matrix

  int64_t slots() const { return cu_seqlens.back() + tail; }
};

// One token, sequences shorter and longer than a block of queries (66), borders on no tile, an empty sequence, a tail,
// no sequence at all, the group sizes 1, 2, 3 and 7, windows below and above a tile.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{0, 1}, 0, 1, 1, 8, kF, 0, false},
      {{0, 5, 72, 73}, 3, 3, 1, 16, kF, 0, false},
      {{0, 200}, 0, 2, 2, 64, kF, 0, true},
      {{0, 40, 40, 107}, 5, 6, 3, 64, kF, -1, true},
      {{0, 150, 171}, 0, 2, 1, 24, kF, 4, false},
      {{0, 300}, 0, 1, 1, 16, kF, 130, true},
      {{0, 33, 100}, 12, 7, 1, 64, kB, 0, true},
      {{0, 140}, 0, 2, 1, 128, kB, 50, false},
      {{0}, 9, 2, 1, 8, kF, 0, false},
      {{0, 33, 33, 100, 101}, 12, 7, 1, 64, kB, 0, false},
      {{0, 130, 321}, 0, 4, 2, 128, kB, 0, false},
      {{0, 150, 200}, 8, 4, 1, 64, kB, 40, false},
  };
  return cases;
}

// Inputs and the double-precision results of one case.
struct Problem {
  explicit Problem(const Case& c)
      : c(c),
        stride(c.packed ? (c.q_heads + 2 * c.kv_heads) * c.head_dim : 0),
        q_shape{c.slots(), c.q_heads, c.head_dim},
        kv_shape{c.slots(), c.kv_heads, c.head_dim},
        scale(1.0f / std::sqrt(static_cast<float>(c.head_dim))),
        q(HostTensor::Random(c.dtype, q_shape, 1, 1.5, stride)),
        k(HostTensor::Random(c.dtype, kv_shape, 2, 1.5, stride)),
        v(HostTensor::Random(c.dtype, kv_shape, 3, 1.0, stride)),
        dout(HostTensor::Random(c.dtype, q_shape, 4)),
        out(HostTensor::Poisoned(c.dtype, q_shape, stride)),
        logsumexp(HostTensor::Poisoned(kF, {c.q_heads, c.slots()})) {
    want_out.resize(static_cast<size_t>(q_shape.elements()));
    want_logsumexp.resize(static_cast<size_t>(c.q_heads * c.slots()));
    const std::vector<double> vs = v.values();
    ForEachRow([&](const Row& row) {
      want_logsumexp[row.head * c.slots() + row.token] = row.logsumexp;
      for (size_t j = 0; j < row.probabilities.size(); ++j) {
        for (int64_t d = 0; d < c.head_dim; ++d) {
          want_out[row.q_at + d] += row.probabilities[j] * vs[row.kv_at[j] + d];
        }
      }
    });
  }

  // The gradients by the formula with the forward's own (rounded) result, which is what the backward is given.
  void ComputeGradients() {
    want_dq.resize(static_cast<size_t>(q_shape.elements()));
    want_dk.resize(static_cast<size_t>(kv_shape.elements()));
    want_dv.resize(static_cast<size_t>(kv_shape.elements()));
    const std::vector<double> qs = q.values(), ks = k.values(), vs = v.values(), douts = dout.values();
    const std::vector<double> outs = out.values();
    ForEachRow([&](const Row& row) {
      const double projection = Dot(douts, row.q_at, outs, row.q_at);
      for (size_t j = 0; j < row.probabilities.size(); ++j) {
        const double p = row.probabilities[j];
        const int64_t kv_at = row.kv_at[j];
        const double ds = p * (Dot(douts, row.q_at, vs, kv_at) - projection) * scale;
        for (int64_t d = 0; d < c.head_dim; ++d) {
          want_dq[row.q_at + d] += ds * ks[kv_at + d];
          want_dk[kv_at + d] += ds * qs[row.q_at + d];
          want_dv[kv_at + d] += p * douts[row.q_at + d];
        }
      }
    });
  }

  // One query of one head: where it and its visible keys lie, and their probabilities.
  struct Row {
    int64_t token, head, q_at;
    std::vector<int64_t> kv_at;
    std::vector<double> probabilities;
    double logsumexp;
  };

  double Dot(const std::vector<double>& a, int64_t a_at, const std::vector<double>& b, int64_t b_at) const {
    double sum = 0.0;
    for (int64_t d = 0; d < c.head_dim; ++d) sum += a[a_at + d] * b[b_at + d];
    return sum;
  }

  template <typename Body>
  void ForEachRow(Body body) const {
    const std::vector<double> qs = q.values(), ks = k.values();
    const int64_t group = c.q_heads / c.kv_heads;
    for (size_t s = 0; s + 1 < c.cu_seqlens.size(); ++s) {
      for (int64_t i = c.cu_seqlens[s]; i < c.cu_seqlens[s + 1]; ++i) {
        const int64_t first = c.window > 0 ? std::max<int64_t>(c.cu_seqlens[s], i + 1 - c.window) : c.cu_seqlens[s];
        for (int64_t head = 0; head < c.q_heads; ++head) {
          Row row = {.token = i, .head = head, .q_at = (i * c.q_heads + head) * c.head_dim};
          double total = 0.0;
          for (int64_t j = first; j <= i; ++j) {
            row.kv_at.push_back((j * c.kv_heads + head / group) * c.head_dim);
            row.probabilities.push_back(std::exp(scale * Dot(qs, row.q_at, ks, row.kv_at.back())));
            total += row.probabilities.back();
          }
          for (double& p : row.probabilities) p /= total;
          row.logsumexp = std::log(total);
          body(row);
        }
      }
    }
  }

  AttentionForward ForwardArgs() {
    return {.q = q,
            .k = k,
            .v = v,
            .cu_seqlens = c.cu_seqlens,
            .scale = scale,
            .window = c.window,
            .out = out,
            .logsumexp = logsumexp};
  }

  Case c;
  int64_t stride;
  Shape q_shape, kv_shape;
  float scale;
  HostTensor q, k, v, dout, out, logsumexp;
  std::vector<double> want_out, want_logsumexp, want_dq, want_dk, want_dv;
};

class AttentionTest : public testing::BackendTest<Case> {};

// What cuDNN wants to know about the sequences: only for what it takes.
HostTensor BoundsOf(const Case& c) {
  if (testing::TestDevice().is_cpu() || c.packed || !IsCapturableAttention(c.dtype, c.head_dim)) return {};
  std::vector<int32_t> padded = c.cu_seqlens;
  padded.resize(c.cu_seqlens.size() + 3, c.cu_seqlens.back());  // room for more sequences than there are
  const auto cu_seqlens = HostTensor::OfInts(padded);
  auto bounds = HostTensor::Poisoned(DType::kInt32, {4, static_cast<int64_t>(padded.size())});
  EXPECT_OK(Run(SequenceBounds{.cu_seqlens = cu_seqlens,
                               .q_heads = c.q_heads,
                               .kv_heads = c.kv_heads,
                               .head_dim = c.head_dim,
                               .bounds = bounds},
                DefaultStream(testing::TestDevice())));
  testing::WaitForTestDevice();
  return bounds;
}

// Tensor cores multiply probabilities and their gradients that are rounded to bf16.
testing::Tolerance GradientTolerance(const Case& c) {
  testing::Tolerance tolerance = SumTolerance(c.dtype, 64.0);
  if (testing::TestDevice().is_cuda() && c.dtype == kB) tolerance.absolute = 2e-2;
  return tolerance;
}

void CheckAgainstReference(const Case& c, absl::Status (*forward)(const AttentionForward&, Stream),
                           absl::Status (*backward)(const AttentionBackward&, Stream)) {
  Problem problem(c);
  const Stream stream = DefaultStream(testing::TestDevice());
  const HostTensor bounds = BoundsOf(c);
  AttentionForward forward_args = problem.ForwardArgs();
  forward_args.bounds = bounds;
  forward_args.longest = c.slots();
  ASSERT_OK(forward(forward_args, stream));
  testing::WaitForTestDevice();
  testing::Tolerance tolerance = ToleranceOf(c.dtype);
  if (testing::TestDevice().is_cuda() && c.dtype == kB) tolerance.absolute = 1e-2;
  EXPECT_TENSOR_NEAR(problem.out, problem.want_out, tolerance);
  if (bounds.bytes().empty()) {  // else the tail holds anything
    EXPECT_TENSOR_NEAR(problem.logsumexp, problem.want_logsumexp, ToleranceOf(kF));
  }

  auto dq = HostTensor::Poisoned(c.dtype, problem.q_shape, problem.stride);
  auto dk = HostTensor::Poisoned(c.dtype, problem.kv_shape, problem.stride);
  auto dv = HostTensor::Poisoned(c.dtype, problem.kv_shape, problem.stride);
  const AttentionBackward args = {.dout = problem.dout,
                                  .q = problem.q,
                                  .k = problem.k,
                                  .v = problem.v,
                                  .out = problem.out,
                                  .logsumexp = problem.logsumexp,
                                  .cu_seqlens = c.cu_seqlens,
                                  .bounds = bounds,
                                  .longest = c.slots(),
                                  .scale = problem.scale,
                                  .window = c.window,
                                  .dq = dq,
                                  .dk = dk,
                                  .dv = dv};
  ASSERT_OK(backward(args, stream));
  testing::WaitForTestDevice();
  problem.ComputeGradients();
  EXPECT_TENSOR_NEAR(dq, problem.want_dq, GradientTolerance(c));
  EXPECT_TENSOR_NEAR(dk, problem.want_dk, GradientTolerance(c));
  EXPECT_TENSOR_NEAR(dv, problem.want_dv, GradientTolerance(c));

  const HostTensor first = dq;
  ASSERT_OK(backward(args, stream));
  testing::WaitForTestDevice();
  EXPECT_EQ(first.bytes(), dq.bytes()) << "the backward is not deterministic";
}

TEST_P(AttentionTest, EqualsDoubleReference) {
  const auto& [c, backend] = GetParam();
  CheckAgainstReference(c, kernels::Forward, kernels::Backward);
}

TEST_P(AttentionTest, LibTorchEqualsDoubleReference) {
  const auto& [c, backend] = GetParam();
  CheckAgainstReference(c, aten::Forward, aten::Backward);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(Cases()),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(AttentionTest, PackingChangesNoBit) {
  const std::vector<int32_t> together = {0, 90, 131};
  const std::vector<int32_t> alone = {0, 41};
  Problem packed(Case{together, 0, 2, 1, 64, kF, 0, false});
  ASSERT_OK(Forward(packed.ForwardArgs(), DefaultStream(Device::Cpu())));
  auto out = HostTensor::Poisoned(kF, {41, 2, 64});
  auto logsumexp = HostTensor::Poisoned(kF, {2, 41});
  AttentionForward args = packed.ForwardArgs();
  args.q = args.q.Rows(90, 131);
  args.k = args.k.Rows(90, 131);
  args.v = args.v.Rows(90, 131);
  args.cu_seqlens = alone;
  args.out = out;
  args.logsumexp = logsumexp;
  ASSERT_OK(Forward(args, DefaultStream(Device::Cpu())));
  const std::vector<double> all = packed.out.values();
  EXPECT_EQ(out.values(), std::vector<double>(all.begin() + 90 * 128, all.end()));
}

// Scores of +-100 and a query that sees one key only: the maximum is subtracted before the exponential.
TEST(AttentionTest, LargeScoresDoNotOverflow) {
  const std::vector<int32_t> cu_seqlens = {0, 20};
  const auto q = HostTensor::Random(kF, {20, 1, 8}, 1, 30.0);
  const auto k = HostTensor::Random(kF, {20, 1, 8}, 2, 30.0);
  const auto v = HostTensor::Random(kF, {20, 1, 8}, 3);
  auto out = HostTensor::Poisoned(kF, {20, 1, 8});
  auto logsumexp = HostTensor::Poisoned(kF, {1, 20});
  ASSERT_OK(Forward(
      AttentionForward{
          .q = q, .k = k, .v = v, .cu_seqlens = cu_seqlens, .scale = 1.0f, .out = out, .logsumexp = logsumexp},
      DefaultStream(Device::Cpu())));
  for (const double value : out.values()) EXPECT_TRUE(std::isfinite(value));
  for (const double value : logsumexp.values()) EXPECT_TRUE(std::isfinite(value));
}

TEST(AttentionTest, NamesTheWrongArgument) {
  Problem problem(Case{{0, 4, 8}, 0, 3, 1, 8, kF, 0, false});
  const auto expect = [](const AttentionForward& args, const char* message) {
    EXPECT_THAT(Forward(args, DefaultStream(Device::Cpu())),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  const std::vector<int32_t> late = {1, 8}, falling = {0, 5, 3}, far = {0, 9};
  AttentionForward args = problem.ForwardArgs();
  args.cu_seqlens = late;
  expect(args, "attention: cu_seqlens: does not start at 0");
  args.cu_seqlens = falling;
  expect(args, "attention: cu_seqlens: descends at entry 2");
  args.cu_seqlens = far;
  expect(args, "attention: cu_seqlens: ends at 9 of 8 slots");
  args = problem.ForwardArgs();
  const auto two_heads = HostTensor::Random(kF, {8, 2, 8}, 1);
  args.k = two_heads;
  expect(args, "attention: k: 2 heads do not divide the 3 of q");
}

}  // namespace
}  // namespace sluice::kernels
