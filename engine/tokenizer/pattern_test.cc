#include "engine/tokenizer/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

using sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::vector<std::pair<size_t, size_t>> Matches(const Pattern& pattern, const std::string& text) {
  std::vector<std::pair<size_t, size_t>> matches;
  pattern.ForEachMatch(text, [&](size_t begin, size_t end) { matches.emplace_back(begin, end); });
  return matches;
}

TEST(PatternTest, LiteralsHaveNoMetaCharacters) {
  ASSERT_OK_AND_ASSIGN(const Pattern pattern, Pattern::Literal("a."));
  EXPECT_THAT(Matches(pattern, "a.ab.a.a."), ElementsAre(Pair(0, 2), Pair(5, 7), Pair(7, 9)));
}

TEST(PatternTest, EmptyMatchesStepByCharacters) {
  ASSERT_OK_AND_ASSIGN(const Pattern pattern, Pattern::Regex("x*"));
  // None right after the match of "xx"; the next step is over a character of two bytes.
  EXPECT_THAT(Matches(pattern, "xx\u00e9y"), ElementsAre(Pair(0, 2), Pair(4, 4), Pair(5, 5)));
}

TEST(PatternTest, WhiteSpaceIsOnigurumas) {
  ASSERT_OK_AND_ASSIGN(const Pattern spaces, Pattern::Regex(R"([\s])"));
  ASSERT_OK_AND_ASSIGN(const Pattern others, Pattern::Regex(R"([^\S])"));
  for (const Pattern& pattern : {spaces, others}) {
    EXPECT_THAT(Matches(pattern, "\u180e\u0085"), ElementsAre(Pair(3, 5))) << "U+180E is no white space, U+0085 is";
  }
}

TEST(PatternTest, HexDigitsAndLineAnchors) {
  ASSERT_OK_AND_ASSIGN(const Pattern hex, Pattern::Regex(R"(\h+)"));
  EXPECT_THAT(Matches(hex, "fg 0A"), ElementsAre(Pair(0, 1), Pair(3, 5)));
  ASSERT_OK_AND_ASSIGN(const Pattern line, Pattern::Regex("^b"));
  EXPECT_THAT(Matches(line, "ab\nb"), ElementsAre(Pair(3, 4)));
}

TEST(PatternTest, RefusesWhatMeansSomethingElse) {
  for (const char* expression : {"[a[b]]", "[a&&b]", "(?m)a", "(?im:a)", R"([\W])", "[[:alpha:]]"}) {
    EXPECT_THAT(Pattern::Regex(expression), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not supported")))
        << expression;
  }
  EXPECT_THAT(Pattern::Regex("(a"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at byte 2")));
}

TEST(PatternTest, LongRunsDoNotExhaustTheMatcher) {
  ASSERT_OK_AND_ASSIGN(const Pattern pattern, Pattern::Regex(R"((?:a|b)+c|(?:a|b)+)"));
  const std::string text(200'000, 'a');
  EXPECT_THAT(Matches(pattern, text), ElementsAre(Pair(0, text.size())));
}

}  // namespace
}  // namespace sluice::engine
