#include "common/ids.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

TEST(NewUniqueIdTest, HasPrefixAndNeverRepeats) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = NewUniqueId("req-");
    EXPECT_EQ(id.size(), 36u);
    EXPECT_EQ(id.substr(0, 4), "req-");
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef", 4), std::string::npos);
    EXPECT_TRUE(ids.insert(id).second);
  }
}

}  // namespace
}  // namespace sluice
