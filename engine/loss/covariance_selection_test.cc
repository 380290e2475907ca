#include "engine/loss/covariance_selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/loss/testing/golden.h"

namespace sluice::engine {
namespace {

class CovarianceSelectionTest : public ::testing::Test {
 protected:
  CovarianceSelectionTest() {
    const auto log_prob = testing::Numbers(golden_.at("log_prob"));
    const auto old_log_prob = testing::Numbers(golden_.at("old_log_prob"));
    const auto advantage = testing::Numbers(golden_.at("advantage"));
    for (size_t i = 0; i < log_prob.size(); ++i) {
      tokens_.push_back({i / 7, static_cast<int64_t>(i % 7), log_prob[i], old_log_prob[i], advantage[i]});
    }
  }

  ClipCovOptions Options(double ratio) const {
    return {.ratio = ratio, .lower = golden_.at("lower"), .upper = golden_.at("upper")};
  }

  // What is selected of `tokens_`, when the list comes in another order.
  template <typename Select>
  std::vector<uint8_t> Shuffled(uint64_t step, Select select) const {
    std::vector<size_t> order(tokens_.size());
    for (size_t i = 0; i < order.size(); ++i)
      order[i] = i * step % order.size();  // step and size have no common factor
    std::vector<CovarianceToken> shuffled;
    for (const size_t i : order) shuffled.push_back(tokens_[i]);
    const std::vector<uint8_t> selected = select(shuffled);
    std::vector<uint8_t> result(tokens_.size());
    for (size_t i = 0; i < order.size(); ++i) result[order[i]] = selected[i];
    return result;
  }

  const nlohmann::json golden_ = testing::ReadGolden("covariance.json");
  std::vector<CovarianceToken> tokens_;
};

int Sum(const std::vector<uint8_t>& selected) { return std::accumulate(selected.begin(), selected.end(), 0); }

TEST_F(CovarianceSelectionTest, KlCovTakesTheLargest) {
  EXPECT_EQ(SelectKlCov(golden_.at("kl_cov_ratio"), tokens_), golden_.at("kl_cov").get<std::vector<uint8_t>>());
  EXPECT_EQ(Sum(SelectKlCov(1e-9, tokens_)), 1);
  EXPECT_EQ(Sum(SelectKlCov(0, tokens_)), 0);
}

TEST_F(CovarianceSelectionTest, ClipCovTakesEligibleTokensAtRandom) {
  const auto eligible = golden_.at("eligible").get<std::vector<uint8_t>>();
  ASSERT_GT(Sum(eligible), 6);
  EXPECT_EQ(SelectClipCov(Options(1), tokens_, 1), eligible);
  std::map<size_t, int> times;
  constexpr int kSeeds = 2000;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto selected = SelectClipCov(Options(0.05), tokens_, seed);
    ASSERT_EQ(Sum(selected), 3);
    for (size_t i = 0; i < selected.size(); ++i) {
      ASSERT_LE(selected[i], eligible[i]);
      times[i] += selected[i];
    }
  }
  // Every eligible token has the same chance; five standard deviations.
  const double chance = 3.0 / Sum(eligible);
  for (size_t i = 0; i < eligible.size(); ++i) {
    if (eligible[i]) {
      EXPECT_NEAR(times[i], kSeeds * chance, 5 * std::sqrt(kSeeds * chance * (1 - chance)));
    }
  }
}

TEST_F(CovarianceSelectionTest, OrderChangesNothing) {
  tokens_[3] = tokens_[11] = tokens_[20];  // equal covariances
  tokens_[3].sample = 0, tokens_[3].token = 3;
  tokens_[11].sample = 1, tokens_[11].token = 4;
  for (const uint64_t step : {7u, 23u, 59u}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_EQ(Shuffled(step, [&](const auto& tokens) { return SelectClipCov(Options(0.1), tokens, seed); }),
                SelectClipCov(Options(0.1), tokens_, seed));
    }
    for (const double ratio : {0.02, 0.05, 0.1, 0.2, 0.5}) {
      EXPECT_EQ(Shuffled(step, [&](const auto& tokens) { return SelectKlCov(ratio, tokens); }),
                SelectKlCov(ratio, tokens_));
    }
  }
}

TEST_F(CovarianceSelectionTest, NoTokens) {
  EXPECT_TRUE(SelectKlCov(0.5, {}).empty());
  EXPECT_TRUE(SelectClipCov({}, {}, 1).empty());
}

}  // namespace
}  // namespace sluice::engine
