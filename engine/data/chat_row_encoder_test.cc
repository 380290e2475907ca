#include "engine/data/chat_row_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/data/row_source.h"
#include "engine/data/truncation.h"
#include "engine/template/jinja/json.h"

namespace sluice::engine {
namespace {

using nlohmann::json;
using sluice::testing::StatusIs;
using sluice::testing::TempDir;
using ::testing::HasSubstr;

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

std::string Template(const std::string& name) { return ReadText("tests/golden/template/" + name); }

class ChatRowEncoderTest : public ::testing::Test {
 protected:
  ChatRowEncoderTest() {
    temp_.Write("tokenizer.json", ReadText("tests/golden/tokenizer/qwen2_style.tokenizer.json"));
    temp_.Write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  }

  absl::StatusOr<std::unique_ptr<ChatRowEncoder>> Load(const std::string& custom_chat_template = "",
                                                       LossOn loss_on = LossOn::kAssistant) {
    return ChatRowEncoder::Load(temp_.path(), custom_chat_template, loss_on);
  }

  static Sample Conversation(const std::string& messages_json) {
    Sample sample;
    sample.kind = Sample::Kind::kConversation;
    sample.messages = jinja::ParseJson(messages_json).value();
    return sample;
  }

  static std::string Scored(const ChatRowEncoder& encoder, const EncodedRow& row) {
    std::vector<int32_t> ids;
    for (size_t t = 0; t < row.ids.size(); ++t) {
      if (row.mask[t] != 0) ids.push_back(row.ids[t]);
    }
    return encoder.tokenizer().Decode(ids);
  }

  TempDir temp_;
};

// A template that drops the thinking of earlier turns: ids are those of the whole rendering, the mask follows them.
TEST_F(ChatRowEncoderTest, IdsOfTheWholeRendering) {
  temp_.Write("chat_template.jinja", Template("C04.jinja"));
  ASSERT_OK_AND_ASSIGN(const auto encoder, Load());
  const json cases = json::parse(Template("C04.json"));
  ASSERT_FALSE(cases.empty());
  for (const json& c : cases) {
    if (!c.contains("loss_mask")) continue;  // prompts, which are for generation
    SCOPED_TRACE(c["conversation"].get<std::string>());
    ASSERT_OK_AND_ASSIGN(const EncodedRow row, encoder->Encode(Conversation(c["messages"].dump())));
    EXPECT_EQ(row.ids, c["ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(row.mask, c["loss_mask"].get<std::vector<uint8_t>>());
  }
}

TEST_F(ChatRowEncoderTest, MaskOfGenerationBlocks) {
  const json cases = json::parse(Template("C05.json"));
  ASSERT_FALSE(cases.empty());
  for (const json& c : cases) {
    SCOPED_TRACE(c["case"].get<std::string>());
    ASSERT_OK_AND_ASSIGN(const auto encoder, Load(c["template"].get<std::string>()));
    ASSERT_OK_AND_ASSIGN(EncodedRow row, encoder->Encode(Conversation(c["messages"].dump())));
    if (c.contains("truncation")) {  // `true`, which is on the right
      ASSERT_OK(Truncate(Truncation::kRight, c["max_length"], &row));
    }
    EXPECT_EQ(row.ids, c["ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(row.mask, c["mask"].get<std::vector<uint8_t>>());
  }
}

// Rows of every kind of Parquet column, through format, template and tokenizer, and back to text.
TEST_F(ChatRowEncoderTest, ParquetRowsRenderAsTheirGoldens) {
  ASSERT_OK_AND_ASSIGN(const auto encoder, Load(Template("C03_test_string.jinja")));
  const json expected = json::parse(ReadText("tests/golden/data/parquet_rendered.json"));
  int rendered = 0;
  for (const auto& [name, wanted] : expected.items()) {
    if (!wanted.contains("rendered_with_C03_test_string")) continue;
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const auto source, RowSource::Open({"tests/golden/data/parquet/" + name}));
    ASSERT_OK_AND_ASSIGN(const auto columns, source->Columns());
    ASSERT_OK_AND_ASSIGN(const RowFormat format, RowFormat::Resolve({}, columns));
    ASSERT_OK_AND_ASSIGN(const auto rows, source->Read(0, source->rows(), format.columns()));
    std::vector<std::string> texts;
    for (const Row& row : rows) {
      ASSERT_OK_AND_ASSIGN(const Sample sample, format.Convert(row));
      ASSERT_OK_AND_ASSIGN(const EncodedRow encoded, encoder->Encode(sample));
      texts.push_back(encoder->tokenizer().Decode(encoded.ids));
    }
    EXPECT_EQ(texts, wanted["rendered_with_C03_test_string"].get<std::vector<std::string>>());
    ++rendered;
  }
  EXPECT_EQ(rendered, 6);
}

TEST_F(ChatRowEncoderTest, TurnsOfAPromptAndItsResponse) {
  ASSERT_OK_AND_ASSIGN(const auto encoder, Load(Template("C04.jinja")));
  ASSERT_OK_AND_ASSIGN(const RowFormat format, RowFormat::Resolve({}, {"question", "answer"}));
  ASSERT_OK_AND_ASSIGN(const Sample sample,
                       format.Convert(jinja::ParseJson(R"({"question": "2+2?", "answer": "It is 4"})").value()));
  ASSERT_OK_AND_ASSIGN(const EncodedRow row, encoder->Encode(sample));
  EXPECT_THAT(encoder->tokenizer().Decode(row.ids),
              HasSubstr("<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_THAT(Scored(*encoder, row), ::testing::EndsWith("It is 4<|im_end|>"));
  ASSERT_OK_AND_ASSIGN(const auto all, Load(Template("C04.jinja"), LossOn::kAll));
  ASSERT_OK_AND_ASSIGN(const EncodedRow scored, all->Encode(sample));
  EXPECT_EQ(scored.ids, row.ids);
  EXPECT_EQ(scored.mask, std::vector<uint8_t>(row.ids.size(), 1));
}

TEST_F(ChatRowEncoderTest, WithoutATemplateTextsAreJoined) {
  ASSERT_OK_AND_ASSIGN(const auto encoder, Load());
  EXPECT_FALSE(encoder->has_chat_template());
  Sample sample;
  sample.kind = Sample::Kind::kPromptResponse;
  sample.prompt = "the sum is";
  sample.response = " four and more";
  ASSERT_OK_AND_ASSIGN(const EncodedRow row, encoder->Encode(sample));
  EXPECT_EQ(encoder->tokenizer().Decode(row.ids), "the sum is four and more<|im_end|>");
  EXPECT_EQ(Scored(*encoder, row), " four and more<|im_end|>");
  EXPECT_EQ(row.ids.back(), encoder->eos_token_id());
  EXPECT_THAT(encoder->Encode(Conversation(R"([{"role": "user", "content": "a"}])")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs a chat template")));
}

TEST_F(ChatRowEncoderTest, PlainTextIsScoredWholeAndEndsOnce) {
  ASSERT_OK_AND_ASSIGN(const auto encoder, Load());
  Sample sample;
  sample.text = "some text";
  ASSERT_OK_AND_ASSIGN(const EncodedRow row, encoder->Encode(sample));
  EXPECT_EQ(Scored(*encoder, row), "some text<|im_end|>");
  sample.text = "some text<|im_end|>";
  ASSERT_OK_AND_ASSIGN(const EncodedRow ended, encoder->Encode(sample));
  EXPECT_EQ(ended.ids, row.ids);
  EXPECT_EQ(ended.mask, row.mask);
}

TEST_F(ChatRowEncoderTest, ContinuationsIgnoreTheTemplate) {
  ASSERT_OK_AND_ASSIGN(const auto encoder, Load(Template("C04.jinja")));
  Sample sample;
  sample.kind = Sample::Kind::kContinuation;
  sample.prompt = "A man";
  sample.response = " runs.";
  ASSERT_OK_AND_ASSIGN(const EncodedRow row, encoder->Encode(sample));
  EXPECT_EQ(encoder->tokenizer().Decode(row.ids), "A man runs.<|im_end|>");
  EXPECT_EQ(Scored(*encoder, row), " runs.<|im_end|>");
}

TEST_F(ChatRowEncoderTest, TextNeedsAnEnd) {
  temp_.Write("tokenizer_config.json", "{}");
  ASSERT_OK_AND_ASSIGN(const auto encoder, Load());
  Sample sample;
  sample.text = "a";
  EXPECT_THAT(encoder->Encode(sample), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("eos_token")));
}

TEST_F(ChatRowEncoderTest, TheDateIsFixedAndToolsHaveTheirTemplate) {
  temp_.Write("tokenizer_config.json", R"x({"eos_token": "<|im_end|>", "chat_template": [
      {"name": "default", "template": "{{ strftime_now('%d %b %Y') }} {{ messages[0].content }}{% generation %}{% endgeneration %}"},
      {"name": "tool_use", "template": "{{ tools[0].name }} {{ enable_thinking }}{% generation %}{% endgeneration %}"}]})x");
  ASSERT_OK_AND_ASSIGN(const auto encoder, Load());
  Sample sample = Conversation(R"([{"role": "user", "content": "hi"}])");
  ASSERT_OK_AND_ASSIGN(const EncodedRow plain, encoder->Encode(sample));
  EXPECT_EQ(encoder->tokenizer().Decode(plain.ids), "26 Jul 2024 hi");
  sample.tools = jinja::ParseJson(R"([{"name": "get_weather"}])").value();
  sample.enable_thinking = false;
  ASSERT_OK_AND_ASSIGN(const EncodedRow tools, encoder->Encode(sample));
  EXPECT_EQ(encoder->tokenizer().Decode(tools.ids), "get_weather False");
}

TEST_F(ChatRowEncoderTest, FingerprintFollowsEveryInput) {
  std::set<std::string> seen;
  const auto load = [&](const std::string& custom, LossOn loss_on) {
    seen.insert(Load(custom, loss_on).value()->Fingerprint());
  };
  load("", LossOn::kAssistant);
  load("", LossOn::kAll);
  load("{{ messages }}", LossOn::kAssistant);
  load(temp_.Write("mine.jinja", "{{ messages[0] }}"), LossOn::kAssistant);
  temp_.Write("chat_template.jinja", "{{ bos_token }}");
  load("", LossOn::kAssistant);
  temp_.Write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  load("", LossOn::kAssistant);
  EXPECT_EQ(seen.size(), 6u);
  load("", LossOn::kAssistant);
  EXPECT_EQ(seen.size(), 6u);
}

TEST_F(ChatRowEncoderTest, MissingFiles) {
  EXPECT_THAT(Load("no/such/template.jinja"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("custom_chat_template")));
  TempDir empty;
  EXPECT_THAT(ChatRowEncoder::Load(empty.path(), "", LossOn::kAssistant),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("tokenizer.json")));
}

}  // namespace
}  // namespace sluice::engine
