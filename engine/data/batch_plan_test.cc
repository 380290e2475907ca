#include "engine/data/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

using sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int64_t> RandomLengths(int64_t count, int64_t longest, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> lengths(count);
  // Skewed like real rows: many short ones, some long ones.
  for (int64_t& length : lengths) length = 1 + (random() % longest) * (random() % 1000) / 1000;
  return lengths;
}

struct Case {
  int64_t rows, world_size, max_tokens, max_sequences;
};

// PLAN-1, PLAN-2, PLAN-3.
TEST(BatchPlanTest, InvariantsHoldForRandomRows) {
  const Case cases[] = {{1, 1, 100, 0},   {1, 8, 100, 0},  {7, 3, 64, 0},    {256, 1, 1000, 0},
                        {256, 4, 300, 5}, {256, 8, 50, 1}, {1000, 7, 97, 3}, {16, 16, 64, 0}};
  for (const Case& c : cases) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const std::vector<int64_t> lengths = RandomLengths(c.rows, c.max_tokens, seed);
      ASSERT_OK_AND_ASSIGN(const BatchPlan plan, PlanBatch(lengths, {c.world_size, c.max_tokens, c.max_sequences}));
      ASSERT_EQ(static_cast<int64_t>(plan.ranks.size()), c.world_size);
      std::multiset<int32_t> seen;
      size_t most = 0;
      for (const auto& micro_batches : plan.ranks) {
        EXPECT_EQ(static_cast<int64_t>(micro_batches.size()), plan.micro_batches_per_rank());
        size_t filled = 0;
        for (const auto& places : micro_batches) {
          int64_t tokens = 0;
          for (int32_t place : places) tokens += lengths[place];
          EXPECT_LE(tokens, c.max_tokens);
          if (c.max_sequences > 0) {
            EXPECT_LE(static_cast<int64_t>(places.size()), c.max_sequences);
          }
          EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
          seen.insert(places.begin(), places.end());
          filled += !places.empty();
        }
        most = std::max(most, filled);
      }
      EXPECT_EQ(static_cast<int64_t>(most), plan.micro_batches_per_rank());  // none is empty on all ranks
      ASSERT_EQ(static_cast<int64_t>(seen.size()), c.rows);
      for (int32_t place = 0; place < c.rows; ++place) EXPECT_EQ(seen.count(place), 1u);
    }
  }
}

TEST(BatchPlanTest, RanksGetNearlyEqualTokens) {
  const std::vector<int64_t> lengths = RandomLengths(512, 1000, 3);
  ASSERT_OK_AND_ASSIGN(const BatchPlan plan, PlanBatch(lengths, {8, 1024, 0}));
  std::vector<int64_t> tokens;
  for (const auto& micro_batches : plan.ranks) {
    tokens.push_back(0);
    for (const auto& places : micro_batches) {
      for (int32_t place : places) tokens.back() += lengths[place];
    }
  }
  const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
  EXPECT_LT(static_cast<double>(*most - *least), 0.01 * static_cast<double>(*most));
  EXPECT_EQ(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}), plan.tokens);
  EXPECT_EQ(plan.TokensOfRanks(lengths), tokens);
}

TEST(BatchPlanTest, FillsMicroBatchesWell) {
  const std::vector<int64_t> lengths = RandomLengths(512, 500, 5);
  ASSERT_OK_AND_ASSIGN(const BatchPlan plan, PlanBatch(lengths, {1, 2048, 0}));
  EXPECT_GT(plan.FillRatio(2048), 0.95);
  EXPECT_EQ(plan.micro_batches_per_rank(), (plan.tokens + 2047) / 2048);  // as few as any packing can have
}

TEST(BatchPlanTest, FirstFitDecreasingByHand) {
  ASSERT_OK_AND_ASSIGN(const BatchPlan plan, PlanBatch({2, 5, 4, 7, 1, 3}, {1, 10, 0}));
  // Longest first: 7 | 5 new | 4 to the 5 | 3 to the 7 | 2, 1 need a third: {7,3}, {5,4,1}, {2}; 1 fits the second.
  EXPECT_THAT(plan.ranks[0], ElementsAre(ElementsAre(3, 5), ElementsAre(1, 2, 4), ElementsAre(0)));
}

TEST(BatchPlanTest, FewerRowsThanRanksLeaveEmptyMicroBatches) {
  ASSERT_OK_AND_ASSIGN(const BatchPlan plan, PlanBatch({5, 6}, {3, 10, 0}));
  EXPECT_THAT(plan.ranks[0], ElementsAre(ElementsAre(1)));
  EXPECT_THAT(plan.ranks[1], ElementsAre(ElementsAre(0)));
  EXPECT_THAT(plan.ranks[2], ElementsAre(IsEmpty()));
}

TEST(BatchPlanTest, ASequenceThatDoesNotFit) {
  EXPECT_THAT(PlanBatch({5, 11}, {1, 10, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("11 tokens does not fit a micro-batch of 10")));
  EXPECT_THAT(PlanBatch({0}, {1, 10, 0}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 tokens")));
}

TEST(PackMicroBatchTest, LabelsStayInsideTheirSequence) {
  std::ifstream in("tests/golden/data/packed_labels.json");
  const nlohmann::json golden = nlohmann::json::parse(in);
  const auto ids = golden["input_ids"].get<std::vector<int32_t>>();
  const auto mask = golden["mask"].get<std::vector<uint8_t>>();
  const auto cu_seqlens = golden["cu_seqlens"].get<std::vector<int32_t>>();
  std::vector<TokenSpan> sequences;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    sequences.push_back({ids.data() + cu_seqlens[s], mask.data() + cu_seqlens[s], cu_seqlens[s + 1] - cu_seqlens[s],
                         100 + static_cast<int64_t>(s)});
  }
  auto labels = golden["expected"]["labels_at_position"].get<std::vector<int32_t>>();
  for (size_t t = 0; t + 1 < labels.size();
       ++t) {  // the golden lists the next token also where it is not to be learned
    if (mask[t + 1] == 0) labels[t] = kIgnoreLabel;
  }
  auto positions = golden["expected"]["position_ids"].get<std::vector<int32_t>>();
  const size_t used = ids.size();
  for (size_t tail : {0, 1, 5}) {
    const MicroBatch batch = PackMicroBatch(sequences, static_cast<int64_t>(used + tail));
    labels.resize(used + tail, kIgnoreLabel);
    positions.resize(used + tail, 0);
    EXPECT_EQ(batch.labels, labels);
    EXPECT_EQ(batch.position_ids, positions);
    EXPECT_EQ(batch.cu_seqlens, cu_seqlens);
    EXPECT_THAT(batch.sample_ids, ElementsAre(100, 101, 102));
    EXPECT_EQ(batch.used_slots(), static_cast<int64_t>(used));
    EXPECT_EQ(batch.token_slots(), static_cast<int64_t>(used + tail));
    EXPECT_EQ(batch.scored_tokens(), golden["expected"]["scored_tokens"].get<int64_t>());
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), batch.input_ids.begin()));
  }
}

TEST(PackMicroBatchTest, NoSequences) {
  const MicroBatch batch = PackMicroBatch({}, 4);
  EXPECT_THAT(batch.cu_seqlens, ElementsAre(0));
  EXPECT_EQ(batch.sequences(), 0);
  EXPECT_EQ(batch.scored_tokens(), 0);
  EXPECT_THAT(batch.input_ids, ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace sluice::engine
