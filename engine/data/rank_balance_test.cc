#include "engine/data/rank_balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace sluice::engine {
namespace {

using ::testing::ElementsAre;

std::vector<double> LoadOf(const std::vector<BalanceUnit>& units, const std::vector<int32_t>& rank_of, int64_t ranks,
                           int64_t mini_batch = -1) {
  std::vector<double> load(static_cast<size_t>(ranks), 0.0);
  for (size_t i = 0; i < units.size(); ++i) {
    if (mini_batch >= 0 && units[i].mini_batch != mini_batch) continue;
    load.at(static_cast<size_t>(rank_of[i])) += units[i].cost;
  }
  return load;
}

TEST(BalanceOverRanksTest, LongAndShortAreMixed) {
  EXPECT_THAT(BalanceOverRanks(std::vector<BalanceUnit>{{0, 8}, {0, 1}, {0, 7}, {0, 2}}, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(BalanceOverRanks(std::vector<BalanceUnit>{{0, 3}, {0, 3}, {0, 3}}, 1), ElementsAre(0, 0, 0));
  EXPECT_THAT(BalanceOverRanks(std::vector<BalanceUnit>{}, 3), ElementsAre());
}

TEST(BalanceOverRanksTest, TheHeavyBinsOfMiniBatchesGoToDifferentRanks) {
  // Each mini-batch alone can only be 5 to 1; the two together are even.
  const std::vector<BalanceUnit> units = {{0, 5}, {0, 1}, {1, 5}, {1, 1}};
  EXPECT_THAT(BalanceOverRanks(units, 2), ElementsAre(0, 1, 1, 0));
}

TEST(BalanceOverRanksTest, FewerUnitsThanRanks) {
  const std::vector<BalanceUnit> units = {{0, 5}, {0, 4}};
  const std::vector<int32_t> rank_of = BalanceOverRanks(units, 4);
  EXPECT_NE(rank_of[0], rank_of[1]);
}

// Answers whose lengths are spread as those of a model that reasons: many short ones, a long tail.
TEST(BalanceOverRanksTest, EveryMiniBatchIsNearlyEven) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> length(5.5, 0.8);
  double worst_before = 0, worst = 0, worst_total = 0;
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<BalanceUnit> units;
    std::vector<int32_t> by_place;
    for (int i = 0; i < 512; ++i) {
      units.push_back({i / 128, std::ceil(length(random))});
      by_place.push_back(i % 8);
    }
    const std::vector<int32_t> rank_of = BalanceOverRanks(units, 8);
    EXPECT_EQ(rank_of, BalanceOverRanks(units, 8));
    for (int64_t mini_batch = 0; mini_batch < 4; ++mini_batch) {
      worst_before = std::max(worst_before, Imbalance(LoadOf(units, by_place, 8, mini_batch)));
      worst = std::max(worst, Imbalance(LoadOf(units, rank_of, 8, mini_batch)));
    }
    worst_total = std::max(worst_total, Imbalance(LoadOf(units, rank_of, 8)));
  }
  EXPECT_GT(worst_before, 1.3) << "there is something to even out";
  EXPECT_LT(worst, 1.02);
  EXPECT_LT(worst_total, 1.005);
}

// Graham's bound, against the best of all ways to deal.
TEST(BalanceOverRanksTest, IsAtMostFourThirdsOfTheBest) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t ranks = 2 + trial % 2;
    std::vector<BalanceUnit> units;
    for (int i = 0; i < 7; ++i) units.push_back({0, 1.0 + static_cast<double>(random() % 20)});
    double best = 1e9;
    std::vector<int32_t> candidate(units.size(), 0);
    for (int64_t code = 0; code < static_cast<int64_t>(std::pow(ranks, units.size())); ++code) {
      int64_t rest = code;
      for (int32_t& rank : candidate) {
        rank = static_cast<int32_t>(rest % ranks);
        rest /= ranks;
      }
      const std::vector<double> load = LoadOf(units, candidate, ranks);
      best = std::min(best, *std::max_element(load.begin(), load.end()));
    }
    const std::vector<double> load = LoadOf(units, BalanceOverRanks(units, ranks), ranks);
    EXPECT_LE(*std::max_element(load.begin(), load.end()), best * 4 / 3 + 1e-9);
  }
}

TEST(ImbalanceTest, IsTheHeaviestOverTheMean) {
  EXPECT_EQ(Imbalance(std::vector<double>{2, 2}), 1);
  EXPECT_EQ(Imbalance(std::vector<double>{3, 1}), 1.5);
  EXPECT_EQ(Imbalance(std::vector<double>{0, 0}), 1);
}

}  // namespace
}  // namespace sluice::engine
