#include "engine/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace sluice::engine {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> EpochOrder(const SamplerOptions& options, int64_t epoch) {
  std::vector<int64_t> order;
  for (int64_t step = epoch * StepsPerEpoch(options); step < (epoch + 1) * StepsPerEpoch(options); ++step) {
    const StepRows step_rows = RowsOfStep(options, step);
    EXPECT_EQ(step_rows.epoch, epoch);
    order.insert(order.end(), step_rows.rows.begin(), step_rows.rows.end());
  }
  return order;
}

TEST(SamplerTest, EachEpochHasEachRowOnce) {
  for (int64_t rows : {1, 2, 3, 5, 16, 63, 64, 65, 100, 1000, 4097}) {
    for (int64_t batch_size : {1, 3, 64, 5000}) {
      for (bool shuffle : {true, false}) {
        const SamplerOptions options = {rows, batch_size, shuffle, 7};
        for (int64_t epoch : {0, 1, 5}) {
          std::vector<int64_t> order = EpochOrder(options, epoch);
          std::sort(order.begin(), order.end());
          std::vector<int64_t> all(rows);
          std::iota(all.begin(), all.end(), 0);
          ASSERT_EQ(order, all) << rows << " rows, batches of " << batch_size;
        }
      }
    }
  }
}

TEST(SamplerTest, EpochsEndWithAShortBatch) {
  const SamplerOptions options = {10, 4, /*shuffle=*/false, 0};
  EXPECT_EQ(StepsPerEpoch(options), 3);
  const StepRows last = RowsOfStep(options, 2);
  EXPECT_THAT(last.rows, ElementsAre(8, 9));
  EXPECT_TRUE(last.ends_epoch);
  const StepRows first = RowsOfStep(options, 3);
  EXPECT_EQ(first.epoch, 1);
  EXPECT_EQ(first.step_in_epoch, 0);
  EXPECT_FALSE(first.ends_epoch);
  EXPECT_THAT(first.rows, ElementsAre(0, 1, 2, 3));
}

TEST(SamplerTest, OrderDependsOnSeedAndEpochAlone) {
  const SamplerOptions options = {1000, 7, true, 42};
  EXPECT_EQ(EpochOrder(options, 3), EpochOrder(options, 3));
  EXPECT_EQ(EpochOrder(options, 3), EpochOrder({1000, 100, true, 42}, 3));  // another batch size cuts the same order
  EXPECT_NE(EpochOrder(options, 3), EpochOrder(options, 4));
  EXPECT_NE(EpochOrder(options, 3), EpochOrder({1000, 7, true, 43}, 3));
  // (seed, epoch) pairs with one sum must not share an order.
  EXPECT_NE(EpochOrder(options, 1), EpochOrder({1000, 7, true, 43}, 0));
}

// The order is part of the promise that a resumed run equals an undisturbed one, also across releases: these values may
// never change.
TEST(SamplerTest, OrderIsPinned) {
  EXPECT_THAT(RowsOfStep({10, 10, true, 42}, 0).rows, ElementsAre(9, 6, 2, 3, 8, 5, 0, 1, 4, 7));
  EXPECT_THAT(RowsOfStep({1000000, 4, true, 1111}, 250000).rows, ElementsAre(163877, 428753, 771589, 392915));
}

// Chi-square of each row's place over many epochs: 9 x 9 degrees of freedom, 99.9 % below 126.
TEST(SamplerTest, EveryRowCanBeAnywhere) {
  constexpr int kRows = 10, kEpochs = 5000;
  int counts[kRows][kRows] = {};
  std::set<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> order = RowsOfStep({kRows, kRows, true, 1}, epoch).rows;
    for (int place = 0; place < kRows; ++place) ++counts[order[place]][place];
    orders.insert(order);
  }
  double chi_square = 0;
  const double expected = static_cast<double>(kEpochs) / kRows;
  for (const auto& row : counts) {
    for (int count : row) chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_square, 126);
  EXPECT_GT(orders.size(), kEpochs * 0.99);  // of 10! = 3628800
}

// Of the 6 orders of 3 rows each comes up about equally often: 5 degrees of freedom, 99.9 % below 20.5.
TEST(SamplerTest, FewRowsHaveAllOrders) {
  std::map<std::vector<int64_t>, int> counts;
  for (int epoch = 0; epoch < 6000; ++epoch) ++counts[RowsOfStep({3, 3, true, 9}, epoch).rows];
  ASSERT_EQ(counts.size(), 6u);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 20.5);
}

// Neighbours in the file do not stay neighbours: the mean distance of rows that follow each other is that of chance, n
// / 3.
TEST(SamplerTest, NeighboursPart) {
  constexpr int64_t kRows = 100000;
  const EpochPermutation permutation(kRows, 3, 0);
  double distance = 0;
  for (int64_t place = 1; place < kRows; ++place) distance += std::abs(permutation(place) - permutation(place - 1));
  EXPECT_NEAR(distance / kRows, kRows / 3.0, kRows * 0.005);
}

}  // namespace
}  // namespace sluice::engine
