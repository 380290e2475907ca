#include "engine/loss/distillation_loss.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "common/testing/status_matchers.h"
#include "engine/loss/testing/golden.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;
using testing::Numbers;

class ListedDistillationTest : public ::testing::Test {
 protected:
  // Student and teacher over the first `listed` ids of each position; NaN at masked places.
  struct Lists {
    std::vector<float> log_prob, teacher_log_prob;
  };

  Lists ListsOf(int64_t listed) const {
    Lists lists;
    for (size_t t = 0; t < batch_.mask.size(); ++t) {
      const double logsumexp = LogSumExp(t);
      for (int64_t k = 0; k < listed; ++k) {
        const bool counts = batch_.mask[t] != 0;
        const double log_q = logits_[t * vocabulary_ + golden_.at("ids")[t][k].get<size_t>()] - logsumexp;
        lists.log_prob.push_back(counts ? static_cast<float>(log_q) : NAN);
        lists.teacher_log_prob.push_back(counts ? golden_.at("teacher_log_prob")[t][k].get<float>() : NAN);
      }
    }
    return lists;
  }

  double LogSumExp(size_t token) const {
    double sum = 0;
    for (size_t v = 0; v < vocabulary_; ++v) sum += std::exp(static_cast<double>(logits_[token * vocabulary_ + v]));
    return std::log(sum);
  }

  const nlohmann::json golden_ = testing::ReadGolden("distillation.json");
  const testing::OwnedBatch batch_{golden_.at("batch")};
  const size_t vocabulary_ = golden_.at("vocabulary");
  const std::vector<float> logits_ = Numbers(golden_.at("logits"));
};

// The oracle's gradient is by the logits: the head's rule turns ours into it.
TEST_F(ListedDistillationTest, EqualsTheOracle) {
  const BatchTotals totals = CountBatch(batch_.View());
  for (const auto& c : golden_.at("cases")) {
    SCOPED_TRACE(c.at("type").get<std::string>() + " K=" + c.at("listed").dump() + " rest=" + c.at("rest").dump());
    const int64_t listed = c.at("listed");
    const ListedDistillationOptions options = {
        .type = *ParseDistillationLoss(c.at("type").get<std::string>()),
        .rest = c.at("rest"),
        .aggregation = *ParseLossAggregation(c.at("aggregation").get<std::string>())};
    const Lists lists = ListsOf(listed);
    std::vector<float> d_log_prob(lists.log_prob.size(), 7.0f);
    ASSERT_OK_AND_ASSIGN(const auto metrics,
                         ListedDistillation(options, {batch_.View(), listed, lists.log_prob, lists.teacher_log_prob},
                                            totals, d_log_prob));
    EXPECT_NEAR(metrics.loss, c.at("loss").get<double>(), 1e-6);
    if (static_cast<size_t>(listed) == vocabulary_) {
      EXPECT_NEAR(metrics.teacher_mass.Mean(), 1, 1e-6);
      EXPECT_NEAR(metrics.student_mass.Mean(), 1, 1e-6);
    }
    if (c.at("d_logits").is_null()) continue;
    for (size_t t = 0; t < batch_.mask.size(); ++t) {
      for (size_t v = 0; v < vocabulary_; ++v) {
        double d_logit = 0;
        const double q = std::exp(logits_[t * vocabulary_ + v] - LogSumExp(t));
        for (int64_t k = 0; k < listed; ++k) {
          d_logit += d_log_prob[t * listed + k] * ((golden_.at("ids")[t][k] == v) - q);
        }
        EXPECT_NEAR(d_logit, c.at("d_logits")[t * vocabulary_ + v].get<double>(), 1e-6) << t << " " << v;
      }
    }
  }
}

TEST_F(ListedDistillationTest, SequenceBySequenceIsTheSame) {
  const BatchTotals totals = CountBatch(batch_.View());
  const Lists lists = ListsOf(3);
  for (const auto type : {DistillationLossType::kForwardKl, DistillationLossType::kReverseKl}) {
    const ListedDistillationOptions options = {.type = type, .aggregation = LossAggregation::kSeqMeanTokenMean};
    ListedDistillationInputs inputs = {batch_.View(), 3, lists.log_prob, lists.teacher_log_prob};
    std::vector<float> whole(lists.log_prob.size()), sum(lists.log_prob.size(), 0.0f);
    ASSERT_OK_AND_ASSIGN(const auto want, ListedDistillation(options, inputs, totals, whole));
    DistillationMetrics got;
    for (size_t i = batch_.sequences.size(); i-- > 0;) {
      inputs.batch.sequences = {&batch_.sequences[i], 1};
      std::vector<float> part(whole.size());
      ASSERT_OK_AND_ASSIGN(const auto metrics, ListedDistillation(options, inputs, totals, part));
      got += metrics;
      for (size_t t = 0; t < part.size(); ++t) sum[t] += part[t];
    }
    EXPECT_EQ(sum, whole);
    EXPECT_NEAR(got.loss, want.loss, 1e-12);
    EXPECT_GE(want.loss, 0);
  }
}

TEST(DistillationTest, UnusedPlacesOfAListAreLeftOut) {
  const std::vector<Sequence> sequences = {{0, 1, 0}};
  const float unused = -INFINITY;
  const std::vector<float> student = {-1.0f, -2.0f, NAN}, teacher = {-0.5f, -1.5f, unused};
  std::vector<float> d3(3), d2(2);
  const BatchTotals totals = {.tokens = 1, .sequences = 1};
  ASSERT_OK_AND_ASSIGN(const auto three, ListedDistillation({}, {{sequences, 1, {}}, 3, student, teacher}, totals, d3));
  const std::span<const float> s2(student.data(), 2), t2(teacher.data(), 2);
  ASSERT_OK_AND_ASSIGN(const auto two, ListedDistillation({}, {{sequences, 1, {}}, 2, s2, t2}, totals, d2));
  EXPECT_EQ(three.loss, two.loss);
  EXPECT_EQ(d3[0], d2[0]);
  EXPECT_EQ(d3[2], 0.0f);
}

TEST(DistillationTest, SampledIsTheEstimatorAggregated) {
  const std::vector<Sequence> sequences = {{0, 2, 0}, {2, 3, 1}};
  const std::vector<uint8_t> mask = {1, 0, 1};
  const std::vector<float> student = {-1.0f, NAN, -2.0f}, teacher = {-1.5f, NAN, -1.0f};
  const TokenBatch batch = {sequences, 3, mask};
  std::vector<float> d_log_prob(3, 7.0f);
  ASSERT_OK_AND_ASSIGN(const auto metrics,
                       SampledDistillation({KlEstimator::kK1, true}, LossAggregation::kTokenMean,
                                           {batch, student, teacher}, CountBatch(batch), d_log_prob));
  EXPECT_DOUBLE_EQ(metrics.loss, (0.5 - 1.0) / 2);
  EXPECT_EQ(d_log_prob, (std::vector<float>{0.25f, 0.0f, -0.5f}));
}

TEST(DistillationTest, NamesTheWrongArgument) {
  const std::vector<Sequence> sequences = {{0, 1, 0}};
  const std::vector<float> two = {-1, -2};
  std::vector<float> out(2);
  const auto wrong = [&](const ListedDistillationOptions& options, int64_t listed, const char* name) {
    EXPECT_THAT(ListedDistillation(options, {{sequences, 1, {}}, listed, two, two}, {.tokens = 1, .sequences = 1}, out),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  };
  wrong({.type = DistillationLossType::kReverseKl, .rest = false}, 2, "rest");
  wrong({}, 0, "listed");
  wrong({}, 3, "log_prob has 2 elements");
}

}  // namespace
}  // namespace sluice::engine
