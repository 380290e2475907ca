#include "kernels/cross_entropy/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/cross_entropy/backends.h"
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
  int64_t tokens, vocabulary, hidden;
  DType dtype;
  float temperature;
  int64_t logits_rows;   // rows of logits allowed at once
  int64_t scored_every;  // one token in so many is scored; 0: none
  bool entropy;          // the objective has an entropy term
};

constexpr Case kCases[] = {
    {1, 2, 8, kF, 1.0f, 1, 1, false},
    {40, 500, 64, kF, 1.0f, 7, 1, true},
    {61, 1003, 96, kF, 0.7f, 100, 3, true},
    {30, 800, 128, kB, 1.0f, 11, 1, false},
    {50, 301, 64, kB, 1.5f, 4, 2, true},
    {12, 100, 16, kF, 1.0f, 5, 0, true},
    // On the GPU: several pieces of 128 rows of which the last is padded, in place and gathered.
    {300, 264, 32, kF, 1.3f, 130, 1, true},
    {300, 264, 32, kB, 1.0f, 300, 2, false},
    {256, 96, 16, kF, 1.0f, 128, 1, false},
    // Rows that two, one and no multiprocessor's shared memory holds whole.
    {5, 25003, 16, kF, 1.0f, 5, 1, true},
    {5, 30001, 16, kF, 1.0f, 2, 2, false},
    {3, 60001, 8, kF, 1.0f, 3, 1, true},
    {3, 120001, 8, kB, 1.0f, 3, 1, false},
    // Without stored logits: rows of several clusters and more than there are at once, words of several tiles, a K that
    // is no multiple of 64, gathered rows, and rows that take several pieces.
    {520, 1100, 72, kB, 1.5f, 520, 1, true},
    {700, 515, 136, kB, 1.5f, 700, 3, false},
    {390, 264, 8, kB, 1.0f, 9, 1, false},
};

// Inputs and the double-precision results of one case.
struct Problem {
  explicit Problem(const Case& c)
      : c(c),
        hidden(HostTensor::Random(c.dtype, {c.tokens, c.hidden}, 1)),
        weight(HostTensor::Random(c.dtype, {c.vocabulary, c.hidden}, 2, 0.3)),
        log_prob(HostTensor::Poisoned(kF, {c.tokens})),
        logsumexp(HostTensor::Poisoned(kF, {c.tokens})),
        entropy(HostTensor::Poisoned(kF, {c.tokens})),
        dhidden(HostTensor::Poisoned(c.dtype, {c.tokens, c.hidden})),
        dweight(HostTensor::Random(kF, {c.vocabulary, c.hidden}, 3)),
        want_log_prob(static_cast<size_t>(c.tokens)),
        want_logsumexp(static_cast<size_t>(c.tokens)),
        want_entropy(static_cast<size_t>(c.tokens)) {
    std::vector<int32_t> slots, label_values;
    for (int64_t t = 0; t < c.tokens; ++t) {
      const bool is_scored = c.scored_every > 0 && t % c.scored_every == 0;
      if (is_scored) slots.push_back(static_cast<int32_t>(t));
      // Where not scored nothing may be read; every fifth scored token has no gradient.
      label_values.push_back(is_scored ? static_cast<int32_t>(t * 7919 % c.vocabulary) : -100);
      d_loss_values.push_back(!is_scored ? std::nan("") : (t % 5 == 4 ? 0.0 : 0.25 + 0.1 * static_cast<double>(t % 4)));
      d_entropy_values.push_back(!is_scored ? std::nan("") : 0.1 * static_cast<double>(t % 3) - 0.1);
    }
    scored = HostTensor::OfInts(slots);
    labels = HostTensor::OfInts(label_values);
    d_loss = HostTensor::Of(kF, {c.tokens}, d_loss_values);
    d_entropy = HostTensor::Of(kF, {c.tokens}, d_entropy_values);
    ComputeWants(slots, label_values);
  }

  void ComputeWants(const std::vector<int32_t>& slots, const std::vector<int32_t>& label_values) {
    const std::vector<double> h = hidden.values();
    const std::vector<double> w = weight.values();
    for (Gradients* want : {&want_loss, &want_both}) {
      want->dhidden.resize(static_cast<size_t>(c.tokens * c.hidden));
      want->dweight.resize(static_cast<size_t>(c.vocabulary * c.hidden));
    }
    for (const int64_t t : slots) {
      std::vector<double> logits(static_cast<size_t>(c.vocabulary));
      double total = 0.0;
      for (int64_t v = 0; v < c.vocabulary; ++v) {
        for (int64_t i = 0; i < c.hidden; ++i) logits[v] += h[t * c.hidden + i] * w[v * c.hidden + i] / c.temperature;
        total += std::exp(logits[v]);
      }
      want_logsumexp[t] = std::log(total);
      want_log_prob[t] = logits[label_values[t]] - want_logsumexp[t];
      for (const double logit : logits) {
        want_entropy[t] -= std::exp(logit - want_logsumexp[t]) * (logit - want_logsumexp[t]);
      }
      for (int64_t v = 0; v < c.vocabulary; ++v) {
        const double log_p = logits[v] - want_logsumexp[t];
        const double p = std::exp(log_p);
        const double of_loss = d_loss_values[t] / c.temperature * (p - (v == label_values[t] ? 1.0 : 0.0));
        const double of_entropy = -d_entropy_values[t] / c.temperature * p * (log_p + want_entropy[t]);
        for (int64_t i = 0; i < c.hidden; ++i) {
          const int64_t from_hidden = t * c.hidden + i, from_weight = v * c.hidden + i;
          want_loss.dhidden[from_hidden] += of_loss * w[from_weight];
          want_loss.dweight[from_weight] += of_loss * h[from_hidden];
          want_both.dhidden[from_hidden] += (of_loss + of_entropy) * w[from_weight];
          want_both.dweight[from_weight] += (of_loss + of_entropy) * h[from_hidden];
        }
      }
    }
  }

  CrossEntropyInputs Inputs() const {
    return {.hidden = hidden,
            .weight = weight,
            .labels = labels,
            .scored = scored,
            .temperature = c.temperature,
            .logits_bytes = c.logits_rows * c.vocabulary * SizeOf(kF)};
  }
  CrossEntropyForward ForwardArgs() {
    return {.in = Inputs(), .log_prob = log_prob, .logsumexp = logsumexp, .entropy = entropy};
  }
  CrossEntropyBackward BackwardArgs() {
    CrossEntropyBackward args = {
        .in = Inputs(), .d_loss = d_loss, .logsumexp = logsumexp, .dhidden = dhidden, .dweight = dweight};
    if (c.entropy) {
      args.d_entropy = d_entropy;
      args.entropy = entropy;
    }
    return args;
  }
  CrossEntropyForwardBackward ForwardBackwardArgs() {
    return {.in = Inputs(), .d_loss = d_loss, .log_prob = log_prob, .dhidden = dhidden, .dweight = dweight};
  }

  // The GPU rounds logits to bf16 where they are stored: half a unit of a dozen, 2^-8 * 12.
  bool LogitsAreRounded(Backend backend) const { return backend == Backend::kCuda && c.dtype == kB; }

  // Of Forward, which rounds none.
  testing::Tolerance ScoreTolerance() const {
    testing::Tolerance tolerance = SumTolerance(kF, static_cast<double>(c.hidden));
    if (c.dtype == kB)
      tolerance.absolute = std::max(tolerance.absolute, 2e-4);  // tensor cores cut their sums' last bits
    return tolerance;
  }
  testing::Tolerance OnePassTolerance(Backend backend) const {
    testing::Tolerance tolerance = ScoreTolerance();
    if (LogitsAreRounded(backend)) tolerance.absolute = 0.06;
    return tolerance;
  }

  struct Gradients {
    std::vector<double> dhidden, dweight;  // without what dweight held before
  };

  void ExpectGradients(Backend backend, const HostTensor& got_dhidden, const Gradients& want,
                       const std::vector<double>& dweight_before) const {
    testing::Tolerance tolerance = ToleranceOf(c.dtype);
    if (LogitsAreRounded(backend)) tolerance.absolute = 0.04;
    EXPECT_TENSOR_NEAR(got_dhidden, want.dhidden, tolerance);
    if (c.dtype == kB) tolerance.absolute = std::max(tolerance.absolute, 4e-3);  // dlogits of order one are rounded
    std::vector<double> want_dweight = want.dweight;
    for (size_t i = 0; i < want_dweight.size(); ++i) want_dweight[i] += dweight_before[i];
    EXPECT_TENSOR_NEAR(dweight, want_dweight, tolerance);
  }

  std::vector<double> Zeros() const { return std::vector<double>(static_cast<size_t>(c.vocabulary * c.hidden)); }

  Case c;
  HostTensor hidden, weight, labels, scored, d_loss, d_entropy, log_prob, logsumexp, entropy, dhidden, dweight;
  std::vector<double> d_loss_values, d_entropy_values, want_log_prob, want_logsumexp, want_entropy;
  Gradients want_loss, want_both;  // of d_loss alone, and with d_entropy
};

class CrossEntropyTest : public testing::BackendTest<Case> {};

TEST_P(CrossEntropyTest, ForwardThenBackwardEqualDoubleReference) {
  const auto& [c, backend] = GetParam();
  Problem problem(c);
  ASSERT_OK(CALL_BACKEND(backend, Forward, problem.ForwardArgs()));
  const testing::Tolerance tolerance = problem.ScoreTolerance();
  EXPECT_TENSOR_NEAR(problem.log_prob, problem.want_log_prob, tolerance);
  EXPECT_TENSOR_NEAR(problem.logsumexp, problem.want_logsumexp, tolerance);
  EXPECT_TENSOR_NEAR(problem.entropy, problem.want_entropy, tolerance);
  const std::vector<double> before = problem.dweight.values();
  ASSERT_OK(CALL_BACKEND(backend, Backward, problem.BackwardArgs()));
  problem.ExpectGradients(backend, problem.dhidden, c.entropy ? problem.want_both : problem.want_loss, before);
}

TEST_P(CrossEntropyTest, OnePassEqualsDoubleReference) {
  const auto& [c, backend] = GetParam();
  Problem problem(c);
  const std::vector<double> before = problem.dweight.values();
  ASSERT_OK(CALL_BACKEND(backend, ForwardBackward, problem.ForwardBackwardArgs()));
  EXPECT_TENSOR_NEAR(problem.log_prob, problem.want_log_prob, problem.OnePassTolerance(backend));
  problem.ExpectGradients(backend, problem.dhidden, problem.want_loss, before);
}

TEST_P(CrossEntropyTest, DhiddenMayBeHiddenAndDweightNew) {
  const auto& [c, backend] = GetParam();
  Problem problem(c);
  problem.dweight = HostTensor::Poisoned(kF, {c.vocabulary, c.hidden});
  const HostTensor hidden = problem.hidden;
  CrossEntropyForwardBackward args = problem.ForwardBackwardArgs();
  args.accumulate_dweight = false;
  args.dhidden = problem.hidden;
  ASSERT_OK(CALL_BACKEND(backend, ForwardBackward, args));
  problem.ExpectGradients(backend, problem.hidden, problem.want_loss, problem.Zeros());

  problem.hidden = hidden;
  problem.dweight = HostTensor::Poisoned(kF, {c.vocabulary, c.hidden});
  ASSERT_OK(CALL_BACKEND(backend, Forward, problem.ForwardArgs()));
  CrossEntropyBackward backward = problem.BackwardArgs();
  backward.accumulate_dweight = false;
  backward.dhidden = problem.hidden;
  ASSERT_OK(CALL_BACKEND(backend, Backward, backward));
  problem.ExpectGradients(backend, problem.hidden, c.entropy ? problem.want_both : problem.want_loss, problem.Zeros());
}

TEST_P(CrossEntropyTest, FrozenHeadAndScoresAloneAreEnough) {
  const auto& [c, backend] = GetParam();
  Problem problem(c);
  CrossEntropyForward forward = problem.ForwardArgs();
  forward.logsumexp = forward.entropy = {};
  ASSERT_OK(CALL_BACKEND(backend, Forward, forward));
  EXPECT_TENSOR_NEAR(problem.log_prob, problem.want_log_prob, problem.ScoreTolerance());
  const std::vector<double> before = problem.dweight.values();
  CrossEntropyForwardBackward args = problem.ForwardBackwardArgs();
  args.dweight = {};
  ASSERT_OK(CALL_BACKEND(backend, ForwardBackward, args));
  EXPECT_EQ(problem.dweight.values(), before);
  problem.dweight = HostTensor::Of(kF, {c.vocabulary, c.hidden}, problem.want_loss.dweight);
  problem.ExpectGradients(backend, problem.dhidden, problem.want_loss, problem.Zeros());
}

INSTANTIATE_TEST_SUITE_P(Shapes, CrossEntropyTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(CrossEntropyChecksTest, NamesTheWrongArgument) {
  Problem problem(Case{3, 10, 8, kF, 1.0f, 4, 1, true});
  const CrossEntropyForward good = problem.ForwardArgs();
  CrossEntropyForward args = good;
  const auto expect = [&](const char* message) {
    EXPECT_THAT(Forward(args, DefaultStream(Device::Cpu())),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
    args = good;
  };
  const auto bad_labels = HostTensor::OfInts({1, 2, 10});
  args.in.labels = bad_labels;
  expect("cross_entropy: labels: slot 2 holds 10, the vocabulary has 10");
  const auto descending = HostTensor::OfInts({1, 0});
  args.in.scored = descending;
  expect("cross_entropy: scored: slot 0 after slot 1");
  const auto outside = HostTensor::OfInts({0, 3});
  args.in.scored = outside;
  expect("cross_entropy: scored: slot 3");
  args.in.temperature = 0.0f;
  expect("cross_entropy: temperature");
  args.log_prob = {};
  expect("cross_entropy: log_prob");
  ASSERT_OK(Forward(args, DefaultStream(Device::Cpu())));

  CrossEntropyBackward backward = problem.BackwardArgs();
  backward.entropy = {};
  EXPECT_THAT(Backward(backward, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cross_entropy: entropy")));
}

TEST(CrossEntropyChecksTest, NoSlotNeedsNoArray) {
  Problem problem(Case{3, 10, 8, kF, 1.0f, 4, 0, true});
  CrossEntropyForward args = problem.ForwardArgs();
  args.in.scored = {};
  ASSERT_OK(Forward(args, DefaultStream(Device::Cpu())));
  EXPECT_EQ(problem.log_prob.values(), std::vector<double>(3, 0.0));
}

// A step's workspace is taken once, for as many tokens as a step may have: fewer need no more.
TEST(CrossEntropyWorkspaceTest, GrowsWithTheTokensUpToTheBound) {
  int64_t previous = 0;
  for (int64_t tokens = 1; tokens < 5000; tokens += 7) {
    const int64_t bytes = CrossEntropyWorkspace(tokens, 64, 1001, kB, int64_t{1} << 20);
    EXPECT_GE(bytes, previous);
    EXPECT_LE(bytes, (int64_t{1} << 20) + 2 * (512 * 64 * 2 + 256) + 256);
    previous = bytes;
  }
}

}  // namespace
}  // namespace sluice::kernels
