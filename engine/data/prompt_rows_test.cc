#include "engine/data/prompt_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "engine/template/jinja/json.h"

namespace sluice::engine {
namespace {

using sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

Row RowOf(const std::string& json) { return jinja::ParseJson(json).value(); }

std::vector<std::string> ColumnsOf(const Row& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row.dict().items()) names.push_back(name.string());
  return names;
}

absl::StatusOr<PromptSample> Convert(const std::string& json, const PromptFormatOptions& options = {},
                                     bool has_chat_template = true) {
  const Row row = RowOf(json);
  ASSIGN_OR_RETURN(const PromptFormat format, PromptFormat::Resolve(options, ColumnsOf(row)));
  return format.Convert(row, has_chat_template);
}

std::string Messages(const PromptSample& sample) { return jinja::ToJson(sample.conversation.messages).value(); }

TEST(PromptRowsTest, ReadsTheLayoutOfVerl) {
  ASSERT_OK_AND_ASSIGN(const PromptSample sample, Convert(R"({
      "data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": "2+2?"}], "ability": "math",
      "reward_model": {"style": "rule", "ground_truth": "4"}, "extra_info": {"split": "train", "index": 7}})"));
  EXPECT_EQ(sample.conversation.kind, Sample::Kind::kConversation);
  EXPECT_EQ(Messages(sample), R"([{"role": "user", "content": "2+2?"}])");
  EXPECT_EQ(sample.data_source, "openai/gsm8k");
  EXPECT_EQ(sample.ground_truth, "4");
  EXPECT_EQ(sample.extra_info_json, R"({"split": "train", "index": 7})");
  EXPECT_EQ(sample.ability, "math");
}

TEST(PromptRowsTest, ReadsTextsAndOtherColumns) {
  PromptFormatOptions options = {
      .prompt_key = "q", .reward_fn_key = "from", .ground_truth_key = "a", .system_prompt = "S"};
  ASSERT_OK_AND_ASSIGN(const PromptSample sample, Convert(R"({"q": "2+2?", "from": "mine", "a": 4})", options));
  EXPECT_EQ(Messages(sample), R"([{"role": "system", "content": "S"}, {"role": "user", "content": "2+2?"}])");
  EXPECT_EQ(sample.data_source, "mine");
  EXPECT_EQ(sample.ground_truth, "4");
  EXPECT_EQ(sample.extra_info_json, "");

  ASSERT_OK_AND_ASSIGN(const PromptSample text, Convert(R"({"prompt": "2+2 ="})", {}, /*has_chat_template=*/false));
  EXPECT_EQ(text.conversation.kind, Sample::Kind::kText);
  EXPECT_EQ(text.conversation.text, "2+2 =");
  EXPECT_THAT(Convert(R"({"prompt": "2"})", {.system_prompt = "S"}, false), StatusIs(kInvalid, HasSubstr("template")));

  // As JSON text, the usual way in one Parquet column.
  ASSERT_OK_AND_ASSIGN(const PromptSample json, Convert(R"({"prompt": "[{\"role\": \"user\", \"content\": \"x\"}]",
      "reward_model": "{\"ground_truth\": [1, 2]}", "extra_info": "{\"a\": 1}"})"));
  EXPECT_EQ(Messages(json), R"([{"role": "user", "content": "x"}])");
  EXPECT_EQ(json.ground_truth, "[1, 2]");
  EXPECT_EQ(json.extra_info_json, R"({"a": 1})");
}

TEST(PromptRowsTest, ReadsGsm8k) {
  const char* row = R"({"question": "How many?", "answer": "1000 + 234 = 1,234\n#### 1,234"})";
  ASSERT_OK_AND_ASSIGN(const PromptSample sample, Convert(row));
  EXPECT_EQ(
      Messages(sample),
      R"([{"role": "user", "content": "How many? Let's think step by step and output the final answer after \"####\"."}])");
  EXPECT_EQ(sample.ground_truth, "1234");
  EXPECT_EQ(sample.data_source, "openai/gsm8k");
  ASSERT_OK_AND_ASSIGN(const PromptSample plain,
                       Convert(R"({"question": "q", "answer": "#### -5", "data_source": "mine", "prompt": "p"})",
                               {.format = "gsm8k", .gsm8k_suffix = ""}));
  EXPECT_EQ(Messages(plain), R"([{"role": "user", "content": "q"}])");
  EXPECT_EQ(plain.ground_truth, "-5");
  EXPECT_EQ(plain.data_source, "mine");
}

TEST(PromptRowsTest, AnEmptyPromptIsAnError) {
  for (const char* prompt : {R"("")", R"(" \n")", R"([{"role": "user", "content": ""}])",
                             R"([{"role": "system", "content": "S"}, {"role": "user", "content": " "}])",
                             R"([{"role": "user", "content": [{"type": "text", "text": ""}]}])"}) {
    EXPECT_THAT(Convert(absl::StrCat("{\"prompt\": ", prompt, "}")), StatusIs(kInvalid, HasSubstr("empty prompt")))
        << prompt;
  }
  EXPECT_THAT(Convert(R"({"prompt": []})"), StatusIs(kInvalid, HasSubstr("empty list")));
  EXPECT_THAT(Convert(R"({"prompt": null})"), StatusIs(kInvalid, HasSubstr("prompt")));
  EXPECT_THAT(Convert(R"({"question": " ", "answer": "#### 1"})"),
              StatusIs(kInvalid, HasSubstr("\"question\" is empty")));
}

TEST(PromptRowsTest, NamesTheColumnThatIsWrong) {
  EXPECT_THAT(Convert(R"({"question": "q", "answer": "5"})"), StatusIs(kInvalid, HasSubstr("no \"####\"")));
  EXPECT_THAT(Convert(R"({"question": "q", "answer": "####  "})"), StatusIs(kInvalid, HasSubstr("nothing after")));
  EXPECT_THAT(Convert(R"({"prompt": 5})"), StatusIs(kInvalid, HasSubstr("\"prompt\" has type int")));
  EXPECT_THAT(Convert(R"({"prompt": "p", "data_source": 5})"),
              StatusIs(kInvalid, HasSubstr("\"data_source\" has type int")));
  EXPECT_THAT(Convert(R"({"prompt": "p", "extra_info": [1]})"),
              StatusIs(kInvalid, HasSubstr("\"extra_info\" has type list")));
  EXPECT_THAT(Convert(R"({"prompt": "p", "extra_info": "{"})"), StatusIs(kInvalid, HasSubstr("not valid JSON")));
  EXPECT_THAT(Convert(R"({"text": "p", "question": "q"})"),
              StatusIs(kInvalid, AllOf(HasSubstr("\"prompt\", or \"question\" and \"answer\""),
                                       HasSubstr("\"text\", \"question\""))));
  EXPECT_THAT(Convert(R"({"prompt": "p"})", {.format = "gsm8k"}), StatusIs(kInvalid, HasSubstr("\"answer\"")));
  EXPECT_THAT(Convert(R"({"prompt": "p"})", {.format = "other"}), StatusIs(kInvalid, HasSubstr("auto, prompt, gsm8k")));
}

}  // namespace
}  // namespace sluice::engine
