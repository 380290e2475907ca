#include "engine/data/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/testing/status_matchers.h"
#include "engine/data/row_source.h"
#include "engine/template/jinja/json.h"

namespace sluice::engine {
namespace {

using sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Row Parse(const std::string& json) { return jinja::ParseJson(json).value(); }
std::string Json(const jinja::Value& value) { return jinja::ToJson(value).value(); }

std::vector<std::string> ColumnsOf(const Row& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row.dict().items()) names.push_back(name.string());
  return names;
}

absl::StatusOr<Sample> Convert(const std::string& row_json, const FormatOptions& options = {}) {
  const Row row = Parse(row_json);
  ASSIGN_OR_RETURN(const RowFormat format, RowFormat::Resolve(options, ColumnsOf(row)));
  return format.Convert(row);
}

struct AutoCase {
  const char* row;
  const char* format;
};

TEST(FormatsTest, AutoChoosesByColumns) {
  const AutoCase cases[] = {
      {R"({"id": 1, "messages": []})", "messages"},
      {R"({"conversations": [], "system": ""})", "sharegpt"},
      {R"({"instruction": "", "input": "", "output": "", "text": ""})", "alpaca"},
      {R"({"ind": 1, "ctx_a": "", "ctx": "", "endings": [], "label": ""})", "hellaswag"},
      {R"({"question": "", "answer": ""})", "gsm8k"},
      {R"({"prompt": "", "response": ""})", "prompt_response"},
      {R"({"prompt": "", "completion": ""})", "prompt_response"},
      {R"({"question": "", "response": ""})", "prompt_response"},
      {R"({"text": "", "meta": {}})", "text"},
  };
  for (const AutoCase& c : cases) {
    ASSERT_OK_AND_ASSIGN(const RowFormat format, RowFormat::Resolve({}, ColumnsOf(Parse(c.row))));
    EXPECT_EQ(format.name(), c.format) << c.row;
  }
  EXPECT_THAT(RowFormat::Resolve({}, {"a", "b"}),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("\"a\", \"b\""), HasSubstr("sharegpt"))));
}

TEST(FormatsTest, ColumnsByName) {
  FormatOptions options = {.format = "prompt_response"};
  options.columns.prompt = "in";
  options.columns.response = "out";
  ASSERT_OK_AND_ASSIGN(const Sample sample, Convert(R"({"in": "a", "out": "b", "prompt": "x"})", options));
  EXPECT_EQ(sample.prompt, "a");
  EXPECT_EQ(sample.response, "b");
  // A format that is asked for by name does not guess.
  EXPECT_THAT(Convert(R"({"in": "a", "response": "b"})", options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("needs a column \"out\"; the columns here are \"in\", \"response\"")));
  EXPECT_THAT(RowFormat::Resolve({.format = "gsm9k"}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gsm8k")));
}

TEST(FormatsTest, PromptAndResponseAreTurns) {
  ASSERT_OK_AND_ASSIGN(const Sample sample,
                       Convert(R"({"question": "1+1?", "answer": "2"})", {.system_prompt = "Be brief."}));
  EXPECT_EQ(sample.kind, Sample::Kind::kPromptResponse);
  EXPECT_EQ(
      Json(sample.messages),
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}])");
}

TEST(FormatsTest, Alpaca) {
  ASSERT_OK_AND_ASSIGN(const Sample plain, Convert(R"({"instruction": "Say hi.", "input": "", "output": "hi"})"));
  EXPECT_EQ(
      plain.prompt,
      "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
      "### Instruction:\nSay hi.\n\n### Response:\n");
  EXPECT_EQ(plain.response, "hi");
  ASSERT_OK_AND_ASSIGN(const Sample with_input, Convert(R"({"instruction": "Add.", "input": "1, 2", "output": "3"})"));
  EXPECT_EQ(
      with_input.prompt,
      "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
      "response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1, 2\n\n### "
      "Response:\n");
  ASSERT_OK_AND_ASSIGN(const Sample no_input, Convert(R"({"instruction": "Say hi.", "output": "hi"})"));
  EXPECT_EQ(no_input.prompt, plain.prompt);
}

TEST(FormatsTest, HellaSwagTakesTheRightEnding) {
  for (const char* label : {"1", "\"1\""}) {
    ASSERT_OK_AND_ASSIGN(
        const Sample sample,
        Convert(std::string(R"({"ctx": "A man", "endings": ["sits.", "runs."], "label": )") + label + "}"));
    EXPECT_EQ(sample.kind, Sample::Kind::kContinuation);
    EXPECT_EQ(sample.prompt, "A man");
    EXPECT_EQ(sample.response, " runs.");
  }
  for (const char* label : {"2", "-1", "\"\"", "\"x\"", "1.0"}) {
    EXPECT_THAT(
        Convert(std::string(R"({"ctx": "A man", "endings": ["sits.", "runs."], "label": )") + label + "}"),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"label\" is not the number of one of the 2 endings")));
  }
}

TEST(FormatsTest, ShareGpt) {
  ASSERT_OK_AND_ASSIGN(const Sample sample,
                       Convert(R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "u"},
      {"from": "gpt", "value": "a"}, {"from": "tool", "value": "t"}]})",
                               {.system_prompt = "not used: there is one"}));
  EXPECT_EQ(
      Json(sample.messages),
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "tool", "content": "t"}])");
  EXPECT_THAT(Convert(R"({"conversations": [{"from": "human", "value": "u"}, {"from": "robot", "value": "a"}]})"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("conversations[1]: unknown speaker \"robot\""), HasSubstr("gpt"))));
  EXPECT_THAT(Convert(R"({"conversations": [{"role": "user", "content": "u"}]})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is the format messages?")));
}

TEST(FormatsTest, MessagesAsJsonText) {
  ASSERT_OK_AND_ASSIGN(
      const Sample sample,
      Convert(
          R"({"messages": "[{\"role\": \"user\", \"content\": \"u\"}]", "tools": "[{\"name\": \"f\"}]", "enable_thinking": false})"));
  EXPECT_EQ(Json(sample.messages), R"([{"role": "user", "content": "u"}])");
  ASSERT_TRUE(sample.tools.has_value());
  EXPECT_EQ(Json(*sample.tools), R"([{"name": "f"}])");
  EXPECT_EQ(sample.enable_thinking, false);
  EXPECT_THAT(Convert(R"({"messages": "[{]"})"), StatusIs(absl::StatusCode::kInvalidArgument,
                                                          HasSubstr("column \"messages\" holds text: not valid JSON")));
}

TEST(FormatsTest, NoToolsIsOneThing) {
  for (const char* tools : {"null", "[]", "\"\"", "\"[]\""}) {
    ASSERT_OK_AND_ASSIGN(
        const Sample sample,
        Convert(std::string(R"({"messages": [{"role": "user", "content": "u"}], "tools": )") + tools + "}"));
    EXPECT_FALSE(sample.tools.has_value()) << tools;
    EXPECT_FALSE(sample.enable_thinking.has_value());
  }
}

struct BadRow {
  const char* row;
  const char* message;
};

TEST(FormatsTest, SaysWhatIsWrong) {
  const BadRow cases[] = {
      {R"({"messages": null})", "column \"messages\" is null"},
      {R"({"messages": []})", "column \"messages\" is an empty list"},
      {R"({"messages": {"role": "user"}})", "column \"messages\" has type dict, a list expected"},
      {R"({"messages": [null]})", "messages[0]: has type NoneType, an object expected"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0]: content has type int, text expected"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "user"}]})", "messages[1]: has no content"},
      {R"({"messages": [{"role": "assistant", "content": null}]})", "messages[0]: has no content"},
      {R"({"messages": [{"content": "a"}]})", "messages[0]: has no role"},
      {R"({"messages": [{"from": "gpt", "value": "a"}]})", "is the format sharegpt?"},
      {R"({"messages": [{"role": "user", "content": ["a"]}]})", "parts are not all objects"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": 5})",
       "column \"tools\" has type int, a list expected"},
      {R"({"messages": [{"role": "user", "content": "a"}], "enable_thinking": "yes"})", "true or false expected"},
      {R"({"prompt": "a", "completion": null})", "column \"completion\" is null"},
      {R"({"prompt": ["a"], "completion": "b"})", "column \"prompt\" has type list, text expected"},
      {R"({"text": 5})", "column \"text\" has type int, text expected"},
  };
  for (const BadRow& c : cases) {
    EXPECT_THAT(Convert(c.row), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message))) << c.row;
  }
}

TEST(FormatsTest, AnAssistantMayOnlyCallOrThink) {
  EXPECT_OK(Convert(R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]})"));
  EXPECT_OK(Convert(R"({"messages": [{"role": "assistant", "reasoning_content": "hm"}]})"));
  EXPECT_OK(Convert(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]})"));
}

TEST(FormatsTest, ALaterRowWithoutTheColumnNamesItsOwn) {
  ASSERT_OK_AND_ASSIGN(const RowFormat format, RowFormat::Resolve({}, {"prompt", "completion"}));
  EXPECT_THAT(format.Convert(Parse(R"({"prompt": "a", "Completion": "b"})")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no column \"completion\"; the columns here are \"prompt\", \"Completion\"")));
}

TEST(FormatsTest, SystemPromptNeedsTurns) {
  EXPECT_THAT(Convert(R"({"text": "a"})", {.system_prompt = "s"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("system_prompt has no place in format text")));
}

TEST(FormatsTest, ParquetGoldens) {
  const std::string folder = "tests/golden/data/parquet/";
  const auto convert_all = [&](const std::string& name) -> absl::StatusOr<std::vector<std::string>> {
    ASSIGN_OR_RETURN(auto source, RowSource::Open({folder + name}));
    ASSIGN_OR_RETURN(const auto columns, source->Columns());
    ASSIGN_OR_RETURN(const RowFormat format, RowFormat::Resolve({}, columns));
    ASSIGN_OR_RETURN(const auto rows, source->Read(0, source->rows(), format.columns()));
    std::vector<std::string> messages;
    for (const Row& row : rows) {
      ASSIGN_OR_RETURN(const Sample sample, format.Convert(row));
      messages.push_back(Json(sample.messages));
    }
    return messages;
  };
  // The same conversations as structs full of nulls and as JSON text.
  ASSERT_OK_AND_ASSIGN(const auto structs, convert_all("struct_with_nulls.parquet"));
  ASSERT_OK_AND_ASSIGN(const auto texts, convert_all("json_text.parquet"));
  ASSERT_EQ(structs.size(), 3u);
  EXPECT_EQ(Json(Parse(structs[0])), Json(Parse(texts[0])));
  EXPECT_EQ(structs[2].find("null"), std::string::npos);
  ASSERT_OK_AND_ASSIGN(const auto large, convert_all("large_types.parquet"));
  EXPECT_EQ(large.size(), 7u);
  ASSERT_OK_AND_ASSIGN(const auto parts, convert_all("part-*.parquet"));
  EXPECT_THAT(parts, ElementsAre(structs[0], structs[1], structs[0]));
  ASSERT_OK_AND_ASSIGN(const auto null_tools, convert_all("null_type_column.parquet"));
  EXPECT_THAT(null_tools, ElementsAre(structs[0], structs[0]));
  EXPECT_THAT(convert_all("missing_completion.parquet"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"completion\" is null")));
  EXPECT_THAT(convert_all("integer_content.parquet"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("content has type int, text expected")));
  EXPECT_THAT(convert_all("null_and_empty_list.parquet"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"messages\" is null")));
}

}  // namespace
}  // namespace sluice::engine
