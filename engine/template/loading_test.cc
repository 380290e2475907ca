// Reading templates from model folders, and tool arguments from text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/template/huggingface_template.h"
#include "engine/template/template_testing.h"
#include "engine/template/tool_arguments.h"

namespace sluice::engine {
namespace {

using jinja::Value;
using ::sluice::testing::StatusIs;
using ::sluice::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(LoadHuggingFaceTemplateTest, ReadsTheConfigsString) {
  const TempDir folder;
  folder.Write("tokenizer_config.json",
               R"({"chat_template": "{{ bos_token }}", "bos_token": {"content": "<s>", "lstrip": false},
                   "eos_token": "</s>", "pad_token": null, "add_bos_token": true})");
  folder.Write("special_tokens_map.json", R"({"eos_token": "<old>", "unk_token": {"content": "<unk>"}})");
  ASSERT_OK_AND_ASSIGN(const HuggingFaceTemplate loaded, LoadHuggingFaceTemplate(folder.path()));
  EXPECT_EQ(loaded.source, "{{ bos_token }}");
  EXPECT_THAT(loaded.special_tokens,
              UnorderedElementsAre(Pair("bos_token", "<s>"), Pair("eos_token", "</s>"), Pair("unk_token", "<unk>")));
}

TEST(LoadHuggingFaceTemplateTest, ReadsNamedTemplates) {
  const TempDir folder;
  folder.Write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  ASSERT_OK_AND_ASSIGN(const HuggingFaceTemplate loaded, LoadHuggingFaceTemplate(folder.path()));
  EXPECT_EQ(loaded.source, "d");
  EXPECT_THAT(loaded.named, UnorderedElementsAre(Pair("default", "d"), Pair("tool_use", "t")));
}

TEST(LoadHuggingFaceTemplateTest, FilesWinOverTheConfig) {
  const TempDir folder;
  folder.Write("tokenizer_config.json", R"({"chat_template": "old"})");
  folder.Write("chat_template.jinja", "new\n");
  folder.Write("additional_chat_templates/rag.jinja", "r");
  ASSERT_OK_AND_ASSIGN(const HuggingFaceTemplate loaded, LoadHuggingFaceTemplate(folder.path()));
  EXPECT_EQ(loaded.source, "new\n");
  EXPECT_THAT(loaded.named, UnorderedElementsAre(Pair("default", "new\n"), Pair("rag", "r")));
}

TEST(LoadHuggingFaceTemplateTest, ReadsChatTemplateJson) {
  const TempDir folder;
  folder.Write("chat_template.json", R"({"chat_template": "j"})");
  ASSERT_OK_AND_ASSIGN(const HuggingFaceTemplate loaded, LoadHuggingFaceTemplate(folder.path()));
  EXPECT_EQ(loaded.source, "j");
}

TEST(LoadHuggingFaceTemplateTest, AFolderWithoutTemplateIsABaseModel) {
  const TempDir folder;
  ASSERT_OK_AND_ASSIGN(const HuggingFaceTemplate loaded, LoadHuggingFaceTemplate(folder.path()));
  EXPECT_FALSE(loaded.source.has_value());
  EXPECT_TRUE(loaded.named.empty());
}

TEST(LoadHuggingFaceTemplateTest, ErrorsNameTheFile) {
  const TempDir folder;
  EXPECT_THAT(LoadHuggingFaceTemplate(folder.path() / "nope"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nope")));
  folder.Write("tokenizer_config.json", R"({"chat_template": )");
  EXPECT_THAT(LoadHuggingFaceTemplate(folder.path()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("tokenizer_config.json: not valid JSON at byte 18"))));
  folder.Write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(LoadHuggingFaceTemplate(folder.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer_config.json: chat_template")));
  folder.Write("tokenizer_config.json", R"({"chat_template": [{"name": "x"}]})");
  EXPECT_THAT(LoadHuggingFaceTemplate(folder.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("{name, template}")));
}

std::string Parsed(const std::string& messages) {
  const auto parsed = ParseToolArguments(ParseOrFail(messages));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *jinja::ToJson(*parsed) : "";
}

TEST(ParseToolArgumentsTest, TextBecomesAnObjectAndAllElseStays) {
  EXPECT_EQ(
      Parsed(
          R"([{"role": "user", "content": "{}"}, {"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{\"b\": 1.0, \"a\": [2]}"}}]}])"),
      R"([{"role": "user", "content": "{}"}, {"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"b": 1.0, "a": [2]}}}]}])");
  EXPECT_EQ(
      Parsed(
          R"([{"tool_calls": [{"name": "f", "arguments": " "}, {"name": "g", "arguments": {"x": "{}"}}]}, {"tool_calls": null}, {"tool_calls": []}])"),
      R"([{"tool_calls": [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"x": "{}"}}]}, {"tool_calls": null}, {"tool_calls": []}])");
}

TEST(ParseToolArgumentsTest, TextThatIsNoObjectIsAnErrorWithItsPlace) {
  const auto status_of = [](const std::string& messages) { return ParseToolArguments(ParseOrFail(messages)).status(); };
  EXPECT_THAT(status_of(R"([{}, {"tool_calls": [{"function": {"arguments": "{\"a\" 1}"}}]}])"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "messages[1].tool_calls[0]: arguments: not valid JSON at byte 5: expected ':' after a key"));
  EXPECT_THAT(status_of(R"([{"tool_calls": [{}, {"arguments": "[1]"}]}])"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "messages[0].tool_calls[1]: arguments: expected a JSON object, got list"));
}

}  // namespace
}  // namespace sluice::engine
