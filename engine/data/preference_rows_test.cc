#include "engine/data/preference_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "engine/template/jinja/json.h"

namespace sluice::engine {
namespace {

using sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = PromptWithResponse::Kind;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<PreferenceSample> Pair(const std::string& json, const PreferenceColumns& columns = {}) {
  return PreferenceFromRow(jinja::ParseJson(json).value(), columns);
}
absl::StatusOr<LabelledSample> Labelled(const std::string& json) {
  return LabelledFromRow(jinja::ParseJson(json).value(), {});
}
std::string Json(const jinja::Value& value) { return jinja::ToJson(value).value(); }

TEST(PreferenceRowsTest, TextsWithAPrompt) {
  ASSERT_OK_AND_ASSIGN(const auto sample, Pair(R"({"prompt": "p", "chosen": "c", "rejected": "r", "margin": 2})"));
  EXPECT_EQ(sample.chosen.kind, Kind::kTurns);
  EXPECT_EQ(sample.chosen.prompt, "p");
  EXPECT_EQ(sample.chosen.response, "c");
  EXPECT_EQ(sample.rejected.prompt, "p");
  EXPECT_EQ(sample.rejected.response, "r");
  EXPECT_EQ(sample.margin, 2.0);
  EXPECT_EQ(Pair(R"({"prompt": "p", "chosen": "c", "rejected": "r", "margin": null})")->margin, std::nullopt);
}

TEST(PreferenceRowsTest, MessagesWithAPrompt) {
  ASSERT_OK_AND_ASSIGN(
      const auto sample,
      Pair(R"({"prompt": [{"role": "user", "content": "p"}], "chosen": [{"role": "assistant", "content": "c"}],
                                "rejected": [{"role": "assistant", "content": "r"}]})",
           {.system_prompt = "S"}));
  EXPECT_EQ(sample.chosen.kind, Kind::kConversation);
  EXPECT_EQ(Json(sample.chosen.prompt_messages),
            R"([{"role": "system", "content": "S"}, {"role": "user", "content": "p"}])");
  EXPECT_EQ(Json(sample.chosen.response_messages), R"([{"role": "assistant", "content": "c"}])");
  EXPECT_EQ(Json(sample.rejected.response_messages), R"([{"role": "assistant", "content": "r"}])");
  ASSERT_OK_AND_ASSIGN(const auto texts,
                       Pair(R"({"prompt": [{"role": "user", "content": "p"}], "chosen": "c", "rejected": "r"})"));
  EXPECT_EQ(Json(texts.rejected.response_messages), R"([{"role": "assistant", "content": "r"}])");
}

// The prompt is what both begin with; a text beside whole conversations only repeats its first turn.
TEST(PreferenceRowsTest, WholeConversations) {
  for (const char* prompt : {"", R"("prompt": "a", )", R"("prompt": null, )"}) {
    ASSERT_OK_AND_ASSIGN(const auto sample, Pair(absl::StrCat("{", prompt, R"(
        "chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
                   {"role": "assistant", "content": "good"}],
        "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
                     {"role": "assistant", "content": "bad"}, {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]})")));
    EXPECT_EQ(sample.chosen.prompt_messages.items().size(), 3u);
    EXPECT_EQ(Json(sample.chosen.response_messages), R"([{"role": "assistant", "content": "good"}])");
    EXPECT_EQ(sample.rejected.response_messages.items().size(), 3u);
  }
}

TEST(PreferenceRowsTest, WholeTexts) {
  ASSERT_OK_AND_ASSIGN(const auto sample, Pair(R"({"chosen": "Q: why? A: because", "rejected": "Q: why? A: no"})"));
  EXPECT_EQ(sample.chosen.kind, Kind::kText);
  EXPECT_EQ(sample.chosen.prompt, "Q: why? A:");
  EXPECT_EQ(sample.chosen.response, " because");
  EXPECT_EQ(sample.rejected.response, " no");
  // é and è share their first byte.
  ASSERT_OK_AND_ASSIGN(const auto accents, Pair(R"({"chosen": "aé", "rejected": "aè"})"));
  EXPECT_EQ(accents.chosen.prompt, "a");
  EXPECT_EQ(accents.rejected.response, "è");
}

TEST(PreferenceRowsTest, NamesWhatIsWrong) {
  EXPECT_THAT(Pair(R"({"prompt": "p", "chosen": "c"})"), StatusIs(kInvalid, HasSubstr("no column \"rejected\"")));
  EXPECT_THAT(Pair(R"({"prompt": "p", "chosen": "c", "rejected": null})"), StatusIs(kInvalid, HasSubstr("rejected")));
  EXPECT_THAT(Pair(R"({"prompt": "p", "chosen": "c", "rejected": 5})"),
              StatusIs(kInvalid, HasSubstr("\"rejected\" has type int")));
  EXPECT_THAT(Pair(R"({"prompt": "p", "chosen": "c", "rejected": "c"})"),
              StatusIs(kInvalid, HasSubstr("are the same")));
  EXPECT_THAT(Pair(R"({"prompt": "p", "chosen": "c", "rejected": ""})"),
              StatusIs(kInvalid, HasSubstr("\"rejected\" holds an empty response")));
  EXPECT_THAT(Pair(R"({"prompt": "", "chosen": "c", "rejected": "r"})"), StatusIs(kInvalid, HasSubstr("empty prompt")));
  EXPECT_THAT(Pair(R"({"chosen": "c", "rejected": "r"})"), StatusIs(kInvalid, HasSubstr("nothing in common")));
  EXPECT_THAT(Pair(R"({"chosen": "a b", "rejected": "a b c"})"), StatusIs(kInvalid, HasSubstr("empty response")));
  EXPECT_THAT(Pair(R"({"prompt": "p", "chosen": [{"role": "assistant", "content": "c"}], "rejected": "r"})"),
              StatusIs(kInvalid, HasSubstr("not both")));
  EXPECT_THAT(Pair(R"({"chosen": [{"role": "user", "content": "a"}], "rejected": [{"role": "user", "content": "b"}]})"),
              StatusIs(kInvalid, HasSubstr("no message in common")));
  EXPECT_THAT(Pair(R"({"chosen": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
                       "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
              StatusIs(kInvalid, HasSubstr("turn of \"user\"")));
  EXPECT_THAT(Pair(R"({"chosen": [{"role": "user", "content": "a"}],
                       "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
              StatusIs(kInvalid, HasSubstr("\"chosen\" has no message of its own")));
  EXPECT_THAT(Pair(R"({"prompt": "p", "chosen": "c", "rejected": "r", "margin": "big"})"),
              StatusIs(kInvalid, HasSubstr("margin")));
  EXPECT_THAT(Pair(R"({"prompt": "p", "chosen": "c", "rejected": "r", "margin": true})"),
              StatusIs(kInvalid, HasSubstr("margin")));
}

TEST(PreferenceRowsTest, LabelledCompletions) {
  ASSERT_OK_AND_ASSIGN(const auto wanted, Labelled(R"({"prompt": "p", "completion": "c", "label": true})"));
  EXPECT_TRUE(wanted.wanted);
  EXPECT_EQ(wanted.completion.response, "c");
  ASSERT_OK_AND_ASSIGN(const auto unwanted, Labelled(R"({"prompt": [{"role": "user", "content": "p"}],
                                                       "completion": [{"role": "assistant", "content": "c"}], "label": 0})"));
  EXPECT_FALSE(unwanted.wanted);
  EXPECT_EQ(unwanted.completion.kind, Kind::kConversation);
  EXPECT_THAT(Labelled(R"({"prompt": "p", "completion": "c", "label": "yes"})"),
              StatusIs(kInvalid, HasSubstr("\"label\" has type str")));
  EXPECT_THAT(Labelled(R"({"prompt": "p", "completion": "c", "label": 2})"), StatusIs(kInvalid, HasSubstr("label")));
  EXPECT_THAT(Labelled(R"({"prompt": "p", "completion": ""})"), StatusIs(kInvalid, HasSubstr("empty response")));
  EXPECT_THAT(Labelled(R"({"prompt": "p", "completion": [{"role": "assistant", "content": "c"}], "label": true})"),
              StatusIs(kInvalid, AllOf(HasSubstr("\"completion\" holds messages"), HasSubstr("\"prompt\" a text"))));
}

}  // namespace
}  // namespace sluice::engine
