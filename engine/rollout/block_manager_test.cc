#include "engine/rollout/block_manager.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

std::vector<int32_t> Range(int32_t begin, int32_t end) {
  std::vector<int32_t> ids(static_cast<size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

TEST(BlockManagerTest, GivesEachPageOnceAndTakesItBack) {
  BlockManager blocks(5, 4, true);
  std::vector<int32_t> a, b;
  ASSERT_OK(blocks.Grow(9, a));
  EXPECT_EQ(a.size(), 3u);
  ASSERT_OK(blocks.Grow(12, a));
  EXPECT_EQ(a.size(), 3u) << "there was room for twelve";
  ASSERT_OK(blocks.Grow(8, b));
  EXPECT_THAT(blocks.Grow(13, a), StatusIs(absl::StatusCode::kResourceExhausted,
                                           HasSubstr("1 pages of the key/value cache are needed, 0 are free")));
  EXPECT_EQ(a.size(), 3u);
  std::set<int32_t> all(a.begin(), a.end());
  all.insert(b.begin(), b.end());
  EXPECT_EQ(all.size(), 5u);
  blocks.Release(a);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(blocks.free_blocks(), 3);
}

TEST(BlockManagerTest, SharesFullPagesOfEqualBeginnings) {
  BlockManager blocks(8, 4, true);
  const std::vector<int32_t> tokens = Range(0, 10);
  std::vector<int32_t> a;
  ASSERT_OK(blocks.Grow(10, a));
  EXPECT_TRUE(blocks.Match(tokens).empty()) << "nothing is computed yet";
  blocks.Publish(tokens, 10, a);
  const std::vector<int32_t> shared = blocks.Match(tokens);
  EXPECT_EQ(shared, std::vector<int32_t>(a.begin(), a.begin() + 2));
  blocks.Adopt(shared);
  EXPECT_EQ(blocks.references(a[0]), 2);
  EXPECT_EQ(blocks.references(a[2]), 1);

  // Equal tokens behind another beginning are other contents.
  std::vector<int32_t> other = Range(4, 8);
  other.push_back(9);
  EXPECT_TRUE(blocks.Match(other).empty());
  // One token is always left to compute.
  EXPECT_EQ(blocks.Match(Range(0, 8)).size(), 1u);
  EXPECT_EQ(blocks.Match(Range(0, 9)).size(), 2u);

  // Pages outlive their last holder until they are needed, the end of a sequence first.
  std::vector<int32_t> b = shared;
  blocks.Release(b);
  const std::vector<int32_t> pages = a;
  blocks.Release(a);
  EXPECT_EQ(blocks.free_blocks(), 8);
  EXPECT_EQ(blocks.Match(tokens).size(), 2u);
  std::vector<int32_t> c;
  ASSERT_OK(blocks.Grow(7 * 4, c));
  EXPECT_EQ(blocks.Match(tokens), std::vector<int32_t>{pages[0]});
  ASSERT_OK(blocks.Grow(8 * 4, c));
  EXPECT_TRUE(blocks.Match(tokens).empty());
}

TEST(BlockManagerTest, PagesBehindAReusedPageAreForgotten) {
  BlockManager blocks(2, 2, true);
  std::vector<int32_t> a;
  ASSERT_OK(blocks.Grow(4, a));
  blocks.Publish(Range(0, 4), 4, a);
  const int32_t first = a[0];
  // Only the first page is released and filled with something else.
  std::vector<int32_t> rest = {a[1]};
  std::vector<int32_t> head = {first};
  blocks.Release(head);
  std::vector<int32_t> b;
  ASSERT_OK(blocks.Grow(2, b));
  ASSERT_EQ(b[0], first);
  const std::vector<int32_t> own = {7, 8}, longer = {7, 8, 2, 3, 9};
  blocks.Publish(own, 2, b);
  EXPECT_EQ(blocks.Match(longer), std::vector<int32_t>{first}) << "the page behind it held another sequence";
  blocks.Release(rest);
}

TEST(BlockManagerTest, WhatIsComputedTwiceIsNamedOnce) {
  BlockManager blocks(6, 2, true);
  const std::vector<int32_t> tokens = Range(0, 5);
  std::vector<int32_t> a, b;
  ASSERT_OK(blocks.Grow(5, a));
  ASSERT_OK(blocks.Grow(5, b));
  blocks.Publish(tokens, 4, a);
  blocks.Publish(tokens, 4, b);
  blocks.Release(b);
  EXPECT_EQ(blocks.Match(tokens), std::vector<int32_t>(a.begin(), a.begin() + 2));
}

TEST(BlockManagerTest, ForgetsContentsAndSharesNothingWhenAskedTo) {
  BlockManager blocks(4, 2, true);
  const std::vector<int32_t> tokens = Range(0, 5);
  std::vector<int32_t> a;
  ASSERT_OK(blocks.Grow(5, a));
  blocks.Publish(tokens, 5, a);
  blocks.ForgetContents();
  EXPECT_TRUE(blocks.Match(tokens).empty());
  blocks.Release(a);
  EXPECT_EQ(blocks.free_blocks(), 4);

  BlockManager alone(4, 2, false);
  ASSERT_OK(alone.Grow(5, a));
  alone.Publish(tokens, 5, a);
  EXPECT_TRUE(alone.Match(tokens).empty());
}

}  // namespace
}  // namespace sluice::engine
