#include "engine/service/warning_box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(WarningBoxTest, EachIsHandedOutOnce) {
  WarningBox box;
  EXPECT_THAT(box.Take(), IsEmpty());
  box.Add("no room");
  box.Add("line\nfeed");
  box.Add("no room");
  EXPECT_THAT(box.Take(), ElementsAre("no room", "line\\nfeed"));
  box.Add("no room");
  box.Add("new");
  EXPECT_THAT(box.Take(), ElementsAre("new"));
}

TEST(WarningBoxTest, OtherNumbersAreTheSameWarning) {
  WarningBox box;
  box.Add("step 9 goes on with 3 of 32 groups");
  box.Add("step 10 goes on with 31 of 32 groups");
  box.Add("rows of this rank: 4,17,9 (0.5)");
  box.Add("rows of this rank: 12 (1.25)");
  box.Add("step goes on with 3 of 32 groups");
  EXPECT_THAT(box.Take(), ElementsAre("step 9 goes on with 3 of 32 groups", "rows of this rank: 4,17,9 (0.5)",
                                      "step goes on with 3 of 32 groups"));
}

TEST(WarningBoxTest, ManyAreCutOff) {
  WarningBox box;
  for (size_t i = 0; i < 3 * WarningBox::kMost; ++i) box.Add("about " + std::string(i + 1, 'x'));
  const std::vector<std::string> warnings = box.Take();
  ASSERT_EQ(warnings.size(), WarningBox::kMost + 1);
  EXPECT_EQ(warnings[WarningBox::kMost - 1], "about " + std::string(WarningBox::kMost, 'x'));
  EXPECT_THAT(warnings.back(), HasSubstr("further warnings"));
  box.Add("yet another");
  EXPECT_THAT(box.Take(), IsEmpty());
}

}  // namespace
}  // namespace sluice::engine
