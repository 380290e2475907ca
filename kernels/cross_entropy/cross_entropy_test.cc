#include "kernels/cross_entropy/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  int64_t scored_every;  // one label in so many is scored; 0: none
};

constexpr Case kCases[] = {
    {1, 2, 8, kF, 1.0f, 1, 1},       {40, 500, 64, kF, 1.0f, 7, 1}, {61, 1003, 96, kF, 0.7f, 100, 3},
    {30, 800, 128, kB, 1.0f, 11, 1}, {50, 301, 64, kB, 1.5f, 4, 2}, {12, 100, 16, kF, 1.0f, 5, 0},
};

// Inputs and the double-precision results of one case.
struct Problem {
  explicit Problem(const Case& c)
      : c(c),
        hidden(HostTensor::Random(c.dtype, {c.tokens, c.hidden}, 1)),
        weight(HostTensor::Random(c.dtype, {c.vocabulary, c.hidden}, 2, 0.3)),
        log_prob(HostTensor::Poisoned(kF, {c.tokens})),
        loss(HostTensor::Poisoned(kF, {c.tokens})),
        logsumexp(HostTensor::Poisoned(kF, {c.tokens})),
        dhidden(HostTensor::Poisoned(c.dtype, {c.tokens, c.hidden})),
        dweight(HostTensor::Random(kF, {c.vocabulary, c.hidden}, 3)),
        want_log_prob(static_cast<size_t>(c.tokens)),
        want_logsumexp(static_cast<size_t>(c.tokens)),
        want_dhidden(static_cast<size_t>(c.tokens * c.hidden)),
        want_dweight(dweight.values()) {
    std::vector<int32_t> label_values;
    std::vector<double> d_loss_values;
    for (int64_t t = 0; t < c.tokens; ++t) {
      const bool scored = c.scored_every > 0 && t % c.scored_every == 0;
      label_values.push_back(scored ? static_cast<int32_t>(t * 7919 % c.vocabulary) : kIgnoredLabel);
      // Where ignored it must not be read; every fifth scored token has no gradient.
      d_loss_values.push_back(!scored ? std::nan("") : (t % 5 == 4 ? 0.0 : 0.25 + 0.1 * static_cast<double>(t % 4)));
    }
    labels = HostTensor::OfInts(label_values);
    d_loss = HostTensor::Of(kF, {c.tokens}, d_loss_values);

    const std::vector<double> h = hidden.values();
    const std::vector<double> w = weight.values();
    for (int64_t t = 0; t < c.tokens; ++t) {
      if (label_values[t] == kIgnoredLabel) continue;
      std::vector<double> logits(static_cast<size_t>(c.vocabulary));
      double total = 0.0;
      for (int64_t v = 0; v < c.vocabulary; ++v) {
        for (int64_t i = 0; i < c.hidden; ++i) logits[v] += h[t * c.hidden + i] * w[v * c.hidden + i] / c.temperature;
        total += std::exp(logits[v]);
      }
      want_logsumexp[t] = std::log(total);
      want_log_prob[t] = logits[label_values[t]] - want_logsumexp[t];
      for (int64_t v = 0; v < c.vocabulary; ++v) {
        const double gradient = d_loss_values[t] / c.temperature *
                                (std::exp(logits[v] - want_logsumexp[t]) - (v == label_values[t] ? 1.0 : 0.0));
        for (int64_t i = 0; i < c.hidden; ++i) {
          want_dhidden[t * c.hidden + i] += gradient * w[v * c.hidden + i];
          want_dweight[v * c.hidden + i] += gradient * h[t * c.hidden + i];
        }
      }
    }
  }

  int64_t logits_bytes() const { return c.logits_rows * c.vocabulary * static_cast<int64_t>(sizeof(float)); }

  void ExpectScores() const {
    std::vector<double> want_loss = want_log_prob;
    for (double& value : want_loss) value = -value;
    const testing::Tolerance tolerance = SumTolerance(kF, static_cast<double>(c.hidden));
    EXPECT_TENSOR_NEAR(log_prob, want_log_prob, tolerance);
    EXPECT_TENSOR_NEAR(loss, want_loss, tolerance);
  }

  void ExpectGradients() const {
    testing::Tolerance tolerance = ToleranceOf(c.dtype);
    EXPECT_TENSOR_NEAR(dhidden, want_dhidden, tolerance);
    if (c.dtype == kB) tolerance.absolute = 4e-3;  // dlogits of order one are rounded to bf16
    EXPECT_TENSOR_NEAR(dweight, want_dweight, tolerance);
  }

  Case c;
  HostTensor hidden, weight, labels, d_loss, log_prob, loss, logsumexp, dhidden, dweight;
  std::vector<double> want_log_prob, want_logsumexp, want_dhidden, want_dweight;
};

class CrossEntropyTest : public testing::BackendTest<Case> {};

TEST_P(CrossEntropyTest, ForwardThenBackwardEqualDoubleReference) {
  const auto& [c, backend] = GetParam();
  Problem problem(c);
  const CrossEntropyForward forward = {.hidden = problem.hidden,
                                       .weight = problem.weight,
                                       .labels = problem.labels,
                                       .temperature = c.temperature,
                                       .logits_bytes = problem.logits_bytes(),
                                       .log_prob = problem.log_prob,
                                       .loss = problem.loss,
                                       .logsumexp = problem.logsumexp};
  ASSERT_OK(CALL_BACKEND(backend, Forward, forward));
  problem.ExpectScores();
  EXPECT_TENSOR_NEAR(problem.logsumexp, problem.want_logsumexp, SumTolerance(kF, static_cast<double>(c.hidden)));
  const CrossEntropyBackward backward = {.d_loss = problem.d_loss,
                                         .hidden = problem.hidden,
                                         .weight = problem.weight,
                                         .labels = problem.labels,
                                         .logsumexp = problem.logsumexp,
                                         .temperature = c.temperature,
                                         .logits_bytes = problem.logits_bytes(),
                                         .dhidden = problem.dhidden,
                                         .dweight = problem.dweight};
  ASSERT_OK(CALL_BACKEND(backend, Backward, backward));
  problem.ExpectGradients();
}

TEST_P(CrossEntropyTest, OnePassEqualsDoubleReference) {
  const auto& [c, backend] = GetParam();
  Problem problem(c);
  const CrossEntropyForwardBackward args = {.d_loss = problem.d_loss,
                                            .hidden = problem.hidden,
                                            .weight = problem.weight,
                                            .labels = problem.labels,
                                            .temperature = c.temperature,
                                            .logits_bytes = problem.logits_bytes(),
                                            .log_prob = problem.log_prob,
                                            .loss = problem.loss,
                                            .dhidden = problem.dhidden,
                                            .dweight = problem.dweight};
  ASSERT_OK(CALL_BACKEND(backend, ForwardBackward, args));
  problem.ExpectScores();
  problem.ExpectGradients();
}

INSTANTIATE_TEST_SUITE_P(Shapes, CrossEntropyTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(CrossEntropyTest, FrozenHeadAndScoresAloneAreEnough) {
  Problem problem(Case{9, 50, 16, kF, 1.0f, 4, 1});
  const Stream cpu = DefaultStream(Device::Cpu());
  ASSERT_OK(Forward(
      CrossEntropyForward{
          .hidden = problem.hidden, .weight = problem.weight, .labels = problem.labels, .log_prob = problem.log_prob},
      cpu));
  EXPECT_TENSOR_NEAR(problem.log_prob, problem.want_log_prob, SumTolerance(kF, 16.0));
  ASSERT_OK(ForwardBackward(CrossEntropyForwardBackward{.d_loss = problem.d_loss,
                                                        .hidden = problem.hidden,
                                                        .weight = problem.weight,
                                                        .labels = problem.labels,
                                                        .log_prob = problem.log_prob,
                                                        .dhidden = problem.dhidden},
                            cpu));
  EXPECT_TENSOR_NEAR(problem.dhidden, problem.want_dhidden, ToleranceOf(kF));
}

TEST(CrossEntropyTest, NamesTheWrongArgument) {
  Problem problem(Case{3, 10, 8, kF, 1.0f, 4, 1});
  const auto bad_labels = HostTensor::OfInts({1, -100, 10});
  CrossEntropyForward args = {
      .hidden = problem.hidden, .weight = problem.weight, .labels = bad_labels, .log_prob = problem.log_prob};
  const auto expect = [&](const char* message) {
    EXPECT_THAT(Forward(args, DefaultStream(Device::Cpu())),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  expect("cross_entropy: labels: slot 2 holds 10, the vocabulary has 10");
  args.labels = problem.labels;
  args.temperature = 0.0f;
  expect("cross_entropy: temperature");
  args.temperature = 1.0f;
  args.log_prob = {};
  expect("cross_entropy: log_prob");
}

}  // namespace
}  // namespace sluice::kernels
