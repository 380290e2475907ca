#include "common/reward_kinds.h"

#include <set>

#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(RewardKindsTest, DefaultsAreOfTheirOwnTypeAndRange) {
  std::set<std::string_view> names;
  for (const RewardKind& kind : RewardKinds()) {
    SCOPED_TRACE(kind.name);
    EXPECT_TRUE(names.insert(kind.name).second);
    EXPECT_EQ(FindRewardKind(kind.name), &kind);
    RewardSpec spec = {.kind = std::string(kind.name)};
    for (const RewardOption& option : kind.options) {
      EXPECT_FALSE(option.doc.empty()) << option.name;
      if (option.required) spec.options[std::string(option.name)] = "1";  // of every type that is required
    }
    EXPECT_OK(RewardOptionValues::Parse(spec));
  }
}

TEST(RewardKindsTest, ValuesAreReadByTheirType) {
  ASSERT_OK_AND_ASSIGN(const auto values, RewardOptionValues::Parse({.kind = "python",
                                                                     .options = {{"path", "/r.py"},
                                                                                 {"timeout", "200ms"},
                                                                                 {"start_timeout", "2m"},
                                                                                 {"memory", "1.5GiB"},
                                                                                 {"kwargs", R"({"a": 1})"},
                                                                                 {"workers", "7"}}}));
  EXPECT_EQ(values.Text("path"), "/r.py");
  EXPECT_EQ(values.Duration("timeout"), absl::Milliseconds(200));
  EXPECT_EQ(values.Duration("start_timeout"), absl::Minutes(2));
  EXPECT_EQ(values.Int("memory"), int64_t{3} << 29);
  EXPECT_EQ(values.Int("file_size"), int64_t{64} << 20);
  EXPECT_EQ(values.Int("workers"), 7);
  EXPECT_EQ(values.Text("kwargs"), R"({"a": 1})");
  ASSERT_OK_AND_ASSIGN(const auto exact,
                       RewardOptionValues::Parse({.kind = "exact_match", .options = {{"ignore_case", "true"}}}));
  EXPECT_TRUE(exact.Bool("ignore_case"));
  EXPECT_TRUE(exact.Bool("strip"));
}

TEST(RewardKindsTest, SaysWhatIsWrongWithAnOption) {
  const auto parse = [](std::string kind, std::map<std::string, std::string> options) {
    return RewardOptionValues::Parse({.kind = std::move(kind), .options = std::move(options)});
  };
  EXPECT_THAT(parse("gsm9k", {}), StatusIs(kInvalid, AllOf(HasSubstr("gsm9k"), HasSubstr("gsm8k, math"))));
  EXPECT_THAT(parse("gsm8k", {{"methd", "strict"}}),
              StatusIs(kInvalid, AllOf(HasSubstr("methd"), HasSubstr("method"))));
  EXPECT_THAT(parse("math", {{"x", "1"}}), StatusIs(kInvalid, HasSubstr("it has none")));
  EXPECT_THAT(parse("gsm8k", {{"method", "lax"}}), StatusIs(kInvalid, HasSubstr("one of strict, flexible, numeric")));
  EXPECT_THAT(parse("gsm8k", {{"score", "nan"}}), StatusIs(kInvalid, HasSubstr("a number expected")));
  EXPECT_THAT(parse("python", {}), StatusIs(kInvalid, HasSubstr("path: reward python needs it")));
  EXPECT_THAT(parse("python", {{"path", "a"}, {"workers", "0"}}), StatusIs(kInvalid, HasSubstr("at least 1 expected")));
  EXPECT_THAT(parse("python", {{"path", "a"}, {"workers", "1.5"}}), StatusIs(kInvalid, HasSubstr("whole number")));
  EXPECT_THAT(parse("python", {{"path", "a"}, {"timeout", "10"}}), StatusIs(kInvalid, HasSubstr("200ms")));
  EXPECT_THAT(parse("python", {{"path", "a"}, {"timeout", "0s"}}), StatusIs(kInvalid, HasSubstr("at least 0.001s")));
  EXPECT_THAT(parse("python", {{"path", "a"}, {"kwargs", "[1]"}}), StatusIs(kInvalid, HasSubstr("JSON object")));
  EXPECT_THAT(parse("python", {{"path", "a"}, {"memory", "1KB"}}), StatusIs(kInvalid, HasSubstr("64MiB")));
}

TEST(RewardKindsTest, SpecsOfOneJobDoNotShareANameAndHaveFiniteWeights) {
  EXPECT_OK(CheckRewardSpecs({}));
  EXPECT_OK(CheckRewardSpecs(std::vector<RewardSpec>{{.kind = "math"}, {.kind = "math", .name = "other"}}));
  EXPECT_THAT(CheckRewardSpecs(std::vector<RewardSpec>{{.kind = "math"}, {.kind = "math"}}),
              StatusIs(kInvalid, HasSubstr("rewards[1] (math): another reward has this name")));
  EXPECT_THAT(CheckRewardSpecs(std::vector<RewardSpec>{{.kind = "math", .weight = 1.0 / 0.0}}),
              StatusIs(kInvalid, HasSubstr("rewards[0] (math): weight")));
  EXPECT_THAT(CheckRewardSpecs(std::vector<RewardSpec>{{.kind = "format", .name = "shape"}}),
              StatusIs(kInvalid, HasSubstr("rewards[0] (shape): pattern")));
}

TEST(RewardKindsTest, TheDocumentationHasEveryOption) {
  const std::string markdown = RewardKindsMarkdown();
  for (const RewardKind& kind : RewardKinds()) {
    EXPECT_THAT(markdown, HasSubstr("### `" + std::string(kind.name) + "`"));
    for (const RewardOption& option : kind.options) {
      EXPECT_THAT(markdown, HasSubstr("| `" + std::string(option.name) + "` | "));
    }
  }
}

}  // namespace
}  // namespace sluice
