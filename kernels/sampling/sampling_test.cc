#include "kernels/sampling/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/testing/tensors.h"

namespace sluice::kernels {
namespace {

using kernels::testing::AvailableBackends;
using kernels::testing::BackendTest;
using kernels::testing::BackendTestName;
using kernels::testing::HostTensor;
using kernels::testing::TestDevice;
using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float NumberOf(const nlohmann::json& value) {
  if (value.is_number()) return value.get<float>();
  return value == "-inf" ? -kInfinity : std::nanf("");
}

std::vector<float> NumbersOf(const nlohmann::json& values) {
  std::vector<float> numbers;
  for (const auto& value : values) numbers.push_back(NumberOf(value));
  return numbers;
}

SamplingRow RowOf(const nlohmann::json& params) {
  SamplingRow row;
  row.temperature = params.value("temperature", 1.0f);
  row.top_k = params.value("top_k", 0);
  row.top_p = params.value("top_p", 1.0f);
  row.min_p = params.value("min_p", 0.0f);
  return row;
}

nlohmann::json Cases() {
  std::ifstream in("tests/golden/sampling/R03.json");
  return nlohmann::json::parse(in);
}

absl::StatusOr<SampledToken> SampleOne(const std::vector<float>& logits, const SamplingRow& row) {
  SampledToken out;
  const absl::Status status =
      kernels::Run(Sampling{.logits = ConstTensorView(logits.data(), {1, static_cast<int64_t>(logits.size())}),
                            .rows = {&row, 1},
                            .out = {&out, 1}});
  if (!status.ok()) return status;
  return out;
}

// How often each token comes in `draws` draws under consecutive indices.
std::vector<int64_t> Counts(const std::vector<float>& logits, SamplingRow row, int64_t draws) {
  std::vector<SamplingRow> rows(static_cast<size_t>(draws), row);
  std::vector<float> all;
  for (int64_t i = 0; i < draws; ++i) {
    rows[static_cast<size_t>(i)].index = static_cast<uint64_t>(i);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  std::vector<SampledToken> out(rows.size());
  EXPECT_OK(kernels::Run(Sampling{
      .logits = ConstTensorView(all.data(), {draws, static_cast<int64_t>(logits.size())}), .rows = rows, .out = out}));
  std::vector<int64_t> counts(logits.size());
  for (const SampledToken& token : out) ++counts[static_cast<size_t>(token.token)];
  return counts;
}

// Pearson's statistic over the tokens that can come; a token that cannot must not have.
double ChiSquare(const std::vector<int64_t>& counts, const std::vector<double>& probabilities, int64_t* degrees) {
  const double draws = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  double sum = 0.0;
  *degrees = -1;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (probabilities[i] == 0.0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " has probability 0";
      continue;
    }
    ++*degrees;
    const double expected = draws * probabilities[i];
    sum += (static_cast<double>(counts[i]) - expected) * (static_cast<double>(counts[i]) - expected) / expected;
  }
  return sum;
}

// The value that chi-square exceeds with probability 1e-4, by Wilson and Hilferty's cube.
double ChiSquareLimit(int64_t degrees) {
  const double k = static_cast<double>(degrees);
  const double cube = 1.0 - 2.0 / (9.0 * k) + 3.719 * std::sqrt(2.0 / (9.0 * k));
  return k * cube * cube * cube;
}

TEST(SamplingTest, DistributionsAreTheClosedFormulas) {
  const nlohmann::json file = Cases();
  for (const auto& c : file["cases"]) {
    SCOPED_TRACE(c["case"].get<std::string>());
    const std::vector<float> logits = NumbersOf(file["logits"][c["logits"].get<std::string>()]);
    const auto want = c["probabilities"].get<std::vector<double>>();
    std::vector<float> got(logits.size());
    ASSERT_OK(Distribution(logits, RowOf(c["params"]), got));
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << "token " << i;
  }
}

TEST(SamplingTest, DrawsFollowTheDistribution) {
  const nlohmann::json file = Cases();
  uint64_t seed = 1;
  for (const auto& c : file["cases"]) {
    SCOPED_TRACE(c["case"].get<std::string>());
    SamplingRow row = RowOf(c["params"]);
    row.seed = seed++;
    int64_t degrees = 0;
    const double statistic = ChiSquare(Counts(NumbersOf(file["logits"][c["logits"].get<std::string>()]), row, 100000),
                                       c["probabilities"].get<std::vector<double>>(), &degrees);
    if (degrees == 0) continue;
    EXPECT_LT(statistic, ChiSquareLimit(degrees));
  }
}

TEST(SamplingTest, GreedyTakesTheLowestOfTheLargest) {
  const nlohmann::json file = Cases();
  for (const auto& c : file["greedy"]) {
    SCOPED_TRACE(c["case"].get<std::string>());
    SamplingRow row = RowOf(c["params"]);
    for (row.index = 0; row.index < 20; ++row.index) {
      const auto token = SampleOne(NumbersOf(file["logits"][c["logits"].get<std::string>()]), row);
      ASSERT_OK(token);
      EXPECT_EQ(token->token, c["token"].get<int32_t>());
    }
  }
}

TEST(SamplingTest, BadLogitsAreNamedNotSampled) {
  const float nan = std::nanf("");
  const std::vector<float> logits = {1, 2, 3, 0, nan, 1, -kInfinity, -kInfinity, -kInfinity, 0, kInfinity, 1};
  const auto message = [&](size_t first, int64_t rows, float temperature) {
    std::vector<SamplingRow> params(static_cast<size_t>(rows), {.temperature = temperature});
    std::vector<SampledToken> out(static_cast<size_t>(rows));
    return kernels::Run(
        Sampling{.logits = ConstTensorView(logits.data() + 3 * first, {rows, 3}), .rows = params, .out = out});
  };
  for (const float temperature : {0.0f, 1.0f}) {
    EXPECT_THAT(message(0, 2, temperature),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sampling: row 1: logit of token 1 is nan")));
    EXPECT_THAT(message(2, 1, temperature),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("row 0: every token is ruled out")));
    EXPECT_THAT(message(3, 1, temperature),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("row 0: logit of token 1 is inf")));
  }
  const std::vector<int32_t> all = {0, 1}, outside = {0, 2};
  EXPECT_THAT(SampleOne({1, 2}, {.forbidden = all}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ruled")));
  EXPECT_THAT(SampleOne({1, 2}, {.repetition_penalty = 2, .seen = outside}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("seen id 2 is outside of the vocabulary of 2")));
  EXPECT_THAT(SampleOne({1, 2}, {.temperature = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("temperature")));
  EXPECT_THAT(SampleOne({1, 2}, {.repetition_penalty = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("repetition_penalty")));
}

TEST(SamplingTest, PenaltyAndForbiddenComeBeforeTheTemperature) {
  const std::vector<float> logits = {2.0f, -1.0f, 0.5f, 1.0f};
  const std::vector<int32_t> seen = {0, 1, 0}, forbidden = {3};
  const SamplingRow row = {.temperature = 0.5f, .repetition_penalty = 2.0f, .seen = seen, .forbidden = forbidden};
  std::vector<float> got(4);
  ASSERT_OK(Distribution(logits, row, got));
  const double a = std::exp(2.0), b = std::exp(-4.0), c = std::exp(1.0);  // logits 1, -2, 0.5 over 0.5
  EXPECT_NEAR(got[0], a / (a + b + c), 1e-6);
  EXPECT_NEAR(got[1], b / (a + b + c), 1e-6);
  EXPECT_NEAR(got[2], c / (a + b + c), 1e-6);
  EXPECT_EQ(got[3], 0.0f);
  // Greedy sees the penalty too.
  ASSERT_OK_AND_ASSIGN(const SampledToken token,
                       SampleOne(logits, {.temperature = 0, .repetition_penalty = 5.0f, .seen = seen}));
  EXPECT_EQ(token.token, 3);
}

TEST(SamplingTest, LogProbIsOfTheWholeDistribution) {
  const std::vector<float> logits = {2.0f, -1.0f, 0.5f, 1.0f};
  const std::vector<int32_t> seen = {0};
  for (const float temperature : {0.0f, 0.7f, 1.0f}) {
    for (const int64_t top_k : {0, 1}) {
      const float t = temperature == 0.0f ? 1.0f : temperature;
      double sum = 0.0;
      for (const float logit : logits) sum += std::exp(logit / t);
      ASSERT_OK_AND_ASSIGN(
          const SampledToken token,
          SampleOne(logits, {.temperature = temperature, .top_k = top_k, .repetition_penalty = 1.5f, .seen = seen}));
      EXPECT_NEAR(token.log_prob, logits[static_cast<size_t>(token.token)] / t - std::log(sum), 1e-6);
    }
  }
}

TEST(SamplingTest, ATokenIsAFunctionOfItsRowAlone) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  constexpr int64_t kRows = 9, kVocabulary = 1000;
  std::vector<float> logits(static_cast<size_t>(kRows * kVocabulary));
  for (float& logit : logits) logit = normal(random);
  std::vector<SamplingRow> rows(kRows);
  for (int64_t i = 0; i < kRows; ++i) {
    rows[static_cast<size_t>(i)] = {.top_k = i % 3 == 0 ? 20 : 0,
                                    .top_p = i % 2 == 0 ? 0.9f : 1.0f,
                                    .seed = 5,
                                    .stream = static_cast<uint64_t>(i),
                                    .index = 3};
  }
  std::vector<SampledToken> together(kRows);
  ASSERT_OK(kernels::Run(
      Sampling{.logits = ConstTensorView(logits.data(), {kRows, kVocabulary}), .rows = rows, .out = together}));
  for (int64_t i = 0; i < kRows; ++i) {
    const auto row = static_cast<size_t>(i);
    const std::vector<float> own(logits.begin() + i * kVocabulary, logits.begin() + (i + 1) * kVocabulary);
    ASSERT_OK_AND_ASSIGN(const SampledToken alone, SampleOne(own, rows[row]));
    EXPECT_EQ(alone.token, together[row].token);
    EXPECT_EQ(alone.log_prob, together[row].log_prob);
  }
  // Another seed, sample or token index is another draw.
  for (const SamplingRow& other : {SamplingRow{.seed = 6, .index = 3}, SamplingRow{.seed = 5, .stream = 1, .index = 3},
                                   SamplingRow{.seed = 5, .index = 4}}) {
    const std::vector<float> flat(100000, 0.0f);
    ASSERT_OK_AND_ASSIGN(const SampledToken first, SampleOne(flat, {.seed = 5, .index = 3}));
    ASSERT_OK_AND_ASSIGN(const SampledToken second, SampleOne(flat, other));
    EXPECT_NE(first.token, second.token);
  }
}

// Against a full sort in double, over vocabularies that fill several blocks, with ties, peaks and infinities.
TEST(SamplingTest, FiltersEqualAFullSort) {
  std::mt19937 random(2);
  for (int round = 0; round < 60; ++round) {
    const size_t vocabulary = round % 3 == 0 ? 5000 : 300;
    std::normal_distribution<float> normal(0.0f, round % 4 == 0 ? 0.05f : 2.5f);
    std::vector<float> logits(vocabulary);
    for (float& logit : logits) {
      logit = normal(random);
      if (round % 5 == 0) logit = std::round(logit * 4.0f) / 4.0f;
      if (round % 7 == 0 && logit < 0.0f) logit = -kInfinity;
    }
    SamplingRow row;
    row.temperature = 0.5f + 0.1f * static_cast<float>(round % 10);
    if (round % 2 == 0) row.top_k = 1 + round * 7;
    if (round % 3 != 1) row.top_p = 0.05f + 0.015f * static_cast<float>(round);
    if (round % 5 == 2) row.min_p = 0.02f;
    SCOPED_TRACE(round);

    const float largest = *std::max_element(logits.begin(), logits.end());
    std::vector<double> weight(vocabulary);
    for (size_t i = 0; i < vocabulary; ++i) weight[i] = std::exp((double{logits[i]} - largest) / row.temperature);
    std::vector<size_t> order(vocabulary);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    if (row.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(row.top_k)));
    const auto mass = [&] {
      double sum = 0.0;
      for (const size_t i : order) sum += weight[i];
      return sum;
    };
    const double target = row.top_p * mass();
    double sum = 0.0, margin = 1.0;
    size_t end = 0;
    while (end < order.size() && (end == 0 || sum < target)) {
      sum += weight[order[end++]];
      margin = std::min(margin, std::abs(sum - target) / target);
    }
    if (row.top_p < 1.0f && margin > 1e-6) order.resize(end);
    std::erase_if(order, [&](size_t i) { return weight[i] < row.min_p; });
    const double kept = mass();
    std::vector<double> want(vocabulary);
    for (const size_t i : order) want[i] = weight[i] / kept;

    std::vector<float> got(vocabulary);
    ASSERT_OK(Distribution(logits, row, got));
    if (row.top_p < 1.0f && margin <= 1e-6) continue;  // a border that fp32 may see on either side
    for (size_t i = 0; i < vocabulary; ++i) ASSERT_NEAR(got[i], want[i], 1e-6) << "token " << i;
  }
}

TEST(SamplingTest, DrawsOfALargeVocabularyFollowTheDistribution) {
  constexpr size_t kVocabulary = 3000;  // several blocks, the last one not full
  std::vector<float> logits(kVocabulary, -kInfinity);
  for (size_t i = 0; i < kVocabulary; i += 100) logits[i] = static_cast<float>(i % 700) / 400.0f;
  for (const SamplingRow& row : {SamplingRow{.seed = 11}, SamplingRow{.top_p = 0.8f, .seed = 12},
                                 SamplingRow{.top_k = 9, .seed = 13}, SamplingRow{.min_p = 0.4f, .seed = 14}}) {
    std::vector<float> probabilities(kVocabulary);
    ASSERT_OK(Distribution(logits, row, probabilities));
    int64_t degrees = 0;
    const double statistic =
        ChiSquare(Counts(logits, row, 5000), {probabilities.begin(), probabilities.end()}, &degrees);
    EXPECT_LT(statistic, ChiSquareLimit(degrees));
  }
}

// A batch of rows of every kind, drawn by the back end.
class SamplingBackendTest : public BackendTest<int64_t> {
 protected:
  HostTensor logits_ =
      HostTensor::Random(DType::kFloat32, {64, std::get<0>(GetParam())}, 3, 2.5, std::get<0>(GetParam()) + 3);
  std::vector<int32_t> seen_ = {0, 1, 2};

  std::vector<SamplingRow> Rows() const {
    std::vector<SamplingRow> rows(64);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = {.seed = 5, .stream = 2, .index = i};
      if (i % 4 == 1) rows[i].temperature = 0.7f;
      if (i % 4 == 2) rows[i].temperature = 0.0f;
      if (i % 8 == 3) rows[i].top_p = 0.9f;
      if (i % 8 == 7) {
        rows[i].repetition_penalty = 1.3f;
        rows[i].seen = seen_;
      }
    }
    return rows;
  }

  absl::StatusOr<std::vector<SampledToken>> Draw(Device device, const std::vector<SamplingRow>& rows) {
    std::vector<SampledToken> out(rows.size());
    ConstTensorView view = logits_;
    view.device = device;
    const absl::Status status = kernels::Run(Sampling{.logits = view, .rows = rows, .out = out}, DefaultStream(device));
    if (!status.ok()) return status;
    return out;
  }
};

// The sums of another order move the borders between tokens by rounding: of these draws none lies so close to one.
TEST_P(SamplingBackendTest, DrawsWhatTheCpuDraws) {
  const std::vector<SamplingRow> rows = Rows();
  ASSERT_OK_AND_ASSIGN(const std::vector<SampledToken> want, Draw(Device::Cpu(), rows));
  ASSERT_OK_AND_ASSIGN(const std::vector<SampledToken> got, Draw(TestDevice(), rows));
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(got[i].token, want[i].token) << "row " << i;
    EXPECT_NEAR(got[i].log_prob, want[i].log_prob, 1e-5f) << "row " << i;
  }
}

TEST_P(SamplingBackendTest, OfEqualLogitsGreedyTakesTheFirst) {
  auto* const row = static_cast<float*>(TensorView(logits_).data);
  const int64_t vocabulary = std::get<0>(GetParam());
  row[vocabulary - 1] = row[vocabulary / 2] = row[vocabulary / 3] = 100.0f;
  std::vector<SamplingRow> rows(64, {.temperature = 0.0f});
  ASSERT_OK_AND_ASSIGN(const std::vector<SampledToken> got, Draw(TestDevice(), rows));
  EXPECT_EQ(got[0].token, vocabulary / 3);
}

TEST_P(SamplingBackendTest, ARowWithoutADistributionIsNamed) {
  const TensorView view = logits_;
  static_cast<float*>(view.data)[5 * view.row_stride + 1] = std::nanf("");
  EXPECT_THAT(Draw(TestDevice(), Rows()).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("row 5")));
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, SamplingBackendTest,
                         ::testing::Combine(::testing::Values(7, 1000, 49152, 151936),
                                            ::testing::ValuesIn(AvailableBackends())),
                         BackendTestName());

}  // namespace
}  // namespace sluice::kernels
