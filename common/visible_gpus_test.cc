#include "common/visible_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(VisibleGpusTest, AllOfTheDriverWhereNothingIsSaid) {
  EXPECT_THAT(VisibleGpuIds(nullptr, 3), ElementsAre("0", "1", "2"));
  EXPECT_THAT(VisibleGpuIds(nullptr, 0), IsEmpty());
}

TEST(VisibleGpusTest, OursInOurOrder) {
  EXPECT_THAT(VisibleGpuIds("1", 2), ElementsAre("1"));
  EXPECT_THAT(VisibleGpuIds("3, 0", 4), ElementsAre("3", "0"));
  EXPECT_THAT(VisibleGpuIds("GPU-8a1f,MIG-77", 2), ElementsAre("GPU-8a1f", "MIG-77"));
}

TEST(VisibleGpusTest, AnEntryThatNamesNoneEndsTheList) {
  EXPECT_THAT(VisibleGpuIds("", 2), IsEmpty());
  EXPECT_THAT(VisibleGpuIds("-1", 2), IsEmpty());
  EXPECT_THAT(VisibleGpuIds("0,2,1", 2), ElementsAre("0"));
  EXPECT_THAT(VisibleGpuIds("1,none,0", 2), ElementsAre("1"));
  EXPECT_THAT(VisibleGpuIds("GPU-8a1f", 0), IsEmpty());
}

}  // namespace
}  // namespace sluice
