#include "common/failpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(FailpointTest, ParsesNamesAndCounts) {
  EXPECT_THAT(ParseFailpoints("a.b=3,c=1"), ElementsAre(Pair("a.b", 3), Pair("c", 1)));
  EXPECT_THAT(ParseFailpoints("a,b=x,=,c=0,d=2"), ElementsAre(Pair("d", 2)));
  EXPECT_TRUE(ParseFailpoints("").empty());
}

TEST(FailpointDeathTest, KillsAtTheNthPass) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("SLUICE_FAILPOINTS", "here=3", 1);
        Failpoint("elsewhere");
        Failpoint("here");
        Failpoint("here");
        fprintf(stderr, "two passes\n");
        Failpoint("here");
      },
      ::testing::KilledBySignal(SIGKILL), "two passes\nfailpoint here");
}

}  // namespace
}  // namespace sluice
