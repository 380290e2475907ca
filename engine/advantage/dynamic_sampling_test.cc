#include "engine/advantage/dynamic_sampling.h"

#include <cmath>

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(FilterGroupsTest, DropsWhatTeachesNothing) {
  const std::vector<GroupMetric> samples = {
      {4, 1.0},          {2, 0.35},         {4, 0.0}, {2, 0.35},  // 4 is mixed, 2 is equal
      {7, 1.0},          {7, std::nullopt}, {7, NAN},             // one scored sample
      {9, 0.0},          {9, INFINITY},     {9, 1.0},             // mixed beside a failed one
      {5, std::nullopt},
  };
  const FilteredGroups result = FilterGroups(samples);
  EXPECT_THAT(result.kept, ElementsAre(4, 9));
  EXPECT_THAT(result.dropped, ElementsAre(2, 5, 7));
  EXPECT_THAT(result.keep, ElementsAre(1, 0, 1, 0, 0, 0, 0, 1, 1, 1, 0));
}

TEST(OverlongPenaltyTest, GrowsLinearlyInTheBuffer) {
  const OverlongOptions options = {.max_response_length = 100, .buffer_length = 20, .penalty_factor = 0.5};
  const auto penalty = [&](int64_t length) { return *OverlongPenalty(options, length); };
  EXPECT_EQ(penalty(1), 0);
  EXPECT_EQ(penalty(80), 0);
  EXPECT_DOUBLE_EQ(penalty(81), -0.025);
  EXPECT_DOUBLE_EQ(penalty(90), -0.25);
  EXPECT_DOUBLE_EQ(penalty(100), -0.5);
}

TEST(OverlongPenaltyTest, NamesTheWrongKey) {
  EXPECT_THAT(OverlongPenalty({.max_response_length = 10, .buffer_length = 11}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overlong_buffer.len")));
  EXPECT_THAT(OverlongPenalty({.max_response_length = 10, .buffer_length = 1, .penalty_factor = -1}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("penalty_factor")));
}

}  // namespace
}  // namespace sluice::engine
