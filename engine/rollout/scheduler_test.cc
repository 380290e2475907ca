#include "engine/rollout/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "common/testing/status_matchers.h"
#include "engine/rollout/block_manager.h"

namespace sluice::engine {
namespace {

constexpr SchedulerLimits kLimits = {.max_batched_tokens = 100, .max_sequences = 4, .block_size = 10};

std::vector<std::pair<size_t, int64_t>> Pairs(const std::vector<ScheduledChunk>& chunks) {
  std::vector<std::pair<size_t, int64_t>> pairs;
  for (const ScheduledChunk& chunk : chunks) pairs.emplace_back(chunk.request, chunk.tokens);
  return pairs;
}
using Chunks = std::vector<std::pair<size_t, int64_t>>;

TEST(SchedulerTest, DecodingComesFirstAndPromptsFillTheRest) {
  const std::vector<int32_t> references = {1, 1};
  const std::vector<int32_t> page0 = {0}, page1 = {1};
  SchedulerState state = {
      .running = {{.tokens = 5, .computed = 4, .blocks = page0}, {.tokens = 9, .computed = 8, .blocks = page1}},
      .waiting = {{.tokens = 60}, {.tokens = 80}},
      .free_blocks = 30,
      .references = references};
  const SchedulerDecision decision = Schedule(kLimits, state);
  EXPECT_EQ(Pairs(decision.running), (Chunks{{0, 1}, {1, 1}}));
  EXPECT_EQ(Pairs(decision.admitted), (Chunks{{0, 60}, {1, 38}})) << "ROLLOUT-1: the second in chunks";
  EXPECT_TRUE(decision.preempted.empty());
}

TEST(SchedulerTest, TheQueueIsNotOvertaken) {
  // ROLLOUT-3: the first needs 9 pages, the second one.
  SchedulerState state = {.waiting = {{.tokens = 85}, {.tokens = 5}}, .free_blocks = 4, .references = {}};
  const std::vector<int32_t> page = {0}, references = {1};
  state.running = {{.tokens = 5, .computed = 4, .blocks = page}};
  state.references = references;
  EXPECT_TRUE(Schedule(kLimits, state).admitted.empty());
  // One whose beginning is being computed is passed over.
  state.waiting[0].waits_for_prefix = true;
  EXPECT_EQ(Pairs(Schedule(kLimits, state).admitted), (Chunks{{1, 5}}));
  // Shared pages cost nothing.
  state.waiting[0] = {.tokens = 85, .cached = 70, .blocks_in_use = 7};
  EXPECT_EQ(Pairs(Schedule(kLimits, state).admitted), (Chunks{{0, 15}, {1, 5}}));
}

TEST(SchedulerTest, AtMostMaxSequences) {
  SchedulerState state = {.waiting = std::vector<WaitingRequest>(9, {.tokens = 3}), .free_blocks = 50};
  EXPECT_EQ(Schedule(kLimits, state).admitted.size(), 4u);
}

TEST(SchedulerTest, TheLastAdmittedGivesItsPagesBack) {
  // Pages 2 and 3 are the last request's; page 2 is shared with the second.
  const std::vector<int32_t> references = {1, 1, 2, 1};
  const std::vector<int32_t> a = {0}, b = {1, 2}, c = {2, 3};
  SchedulerState state = {.running = {{.tokens = 11, .computed = 10, .blocks = a},
                                      {.tokens = 21, .computed = 20, .blocks = b},
                                      {.tokens = 15, .computed = 14, .blocks = c}},
                          .waiting = {{.tokens = 1}},
                          .free_blocks = 0,
                          .references = references};
  SchedulerDecision decision = Schedule(kLimits, state);
  // The first takes page 3; the second then preempts itself, which frees pages 1 and 2.
  EXPECT_EQ(decision.preempted, (std::vector<size_t>{2, 1}));
  EXPECT_EQ(Pairs(decision.running), (Chunks{{0, 1}}));
  EXPECT_TRUE(decision.admitted.empty()) << "what was preempted goes before the queue";
}

// A simulated rollout with little room: every request ends, and the invariants hold in every pass.
TEST(SchedulerTest, RandomRolloutsEndAndKeepTheInvariants) {
  std::mt19937 random(3);
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  struct Request {
    std::vector<int32_t> tokens;
    int64_t end = 0, computed = 0;
    std::vector<int32_t> blocks;
    int64_t id = 0;
  };
  for (int round = 0; round < 60; ++round) {
    const int64_t block_size = between(1, 5), longest = between(6, 40);
    const int64_t pages = (longest + block_size - 1) / block_size + between(0, 6);
    const int64_t most = between(1, 6);
    const SchedulerLimits limits = {
        .max_batched_tokens = most + between(0, 20), .max_sequences = most, .block_size = block_size};
    BlockManager blocks(pages, block_size, round % 2 == 0);
    std::vector<Request> running, waiting;
    for (int64_t i = 0; i < 12; ++i) {
      Request request{.id = i};
      const int64_t prompt = between(1, longest - 1);
      for (int64_t t = 0; t < prompt; ++t)
        request.tokens.push_back(static_cast<int32_t>(i % 3 == 0 ? t : between(0, 2)));
      request.end = between(prompt + 1, longest);
      waiting.push_back(request);
    }
    int64_t passes = 0;
    std::vector<int64_t> first_admissions;
    while (!running.empty() || !waiting.empty()) {
      ASSERT_LT(++passes, 5000) << "ROLLOUT-5";
      SchedulerState state;
      state.references = blocks.references();
      state.free_blocks = blocks.free_blocks();
      for (const Request& request : running) {
        state.running.push_back({.tokens = static_cast<int64_t>(request.tokens.size()),
                                 .computed = request.computed,
                                 .blocks = request.blocks});
      }
      for (const Request& request : waiting) {
        WaitingRequest entry = {.tokens = static_cast<int64_t>(request.tokens.size())};
        for (const int32_t page : blocks.Match(request.tokens)) {
          entry.cached += block_size;
          entry.blocks_in_use += blocks.references(page) > 0;
        }
        state.waiting.push_back(entry);
      }
      const SchedulerDecision decision = Schedule(limits, state);
      int64_t tokens = 0;
      for (const ScheduledChunk& chunk : decision.running) tokens += chunk.tokens;
      for (const ScheduledChunk& chunk : decision.admitted) tokens += chunk.tokens;
      ASSERT_LE(tokens, limits.max_batched_tokens) << "ROLLOUT-1";
      ASSERT_LE(static_cast<int64_t>(running.size() - decision.preempted.size() + decision.admitted.size()), most)
          << "ROLLOUT-1";
      ASSERT_TRUE(tokens > 0 || !decision.preempted.empty()) << "ROLLOUT-5";
      for (size_t i = 0; i < decision.preempted.size(); ++i) {
        ASSERT_EQ(decision.preempted[i], running.size() - 1) << "ROLLOUT-4";
        ASSERT_GT(decision.preempted[i], 0u) << "ROLLOUT-5";
        blocks.Release(running.back().blocks);
        running.back().computed = 0;
        waiting.insert(waiting.begin(), running.back());
        running.pop_back();
      }
      for (const ScheduledChunk& chunk : decision.running) {
        Request& request = running[chunk.request];
        ASSERT_OK(blocks.Grow(request.computed + chunk.tokens, request.blocks)) << "ROLLOUT-2";
        request.computed += chunk.tokens;
      }
      size_t taken = 0;
      for (const ScheduledChunk& chunk : decision.admitted) {
        ASSERT_EQ(chunk.request, taken) << "ROLLOUT-3";
        Request request = waiting.front();
        waiting.erase(waiting.begin());
        ++taken;
        request.blocks = blocks.Match(request.tokens);
        blocks.Adopt(request.blocks);
        request.computed = static_cast<int64_t>(request.blocks.size()) * block_size;
        request.computed += std::min(chunk.tokens, static_cast<int64_t>(request.tokens.size()) - request.computed);
        ASSERT_OK(blocks.Grow(request.computed, request.blocks)) << "ROLLOUT-2";
        running.push_back(request);
      }
      for (Request& request : running) {
        blocks.Publish(request.tokens, request.computed, request.blocks);
        if (request.computed == static_cast<int64_t>(request.tokens.size())) {
          request.tokens.push_back(static_cast<int32_t>(between(0, 2)));
        }
      }
      std::erase_if(running, [&](Request& request) {
        if (static_cast<int64_t>(request.tokens.size()) < request.end) return false;
        blocks.Release(request.blocks);
        return true;
      });
    }
    EXPECT_EQ(blocks.free_blocks(), pages);
  }
}

}  // namespace
}  // namespace sluice::engine
