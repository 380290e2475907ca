#include "engine/template/assistant_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/shared_dir.h"
#include "common/testing/status_matchers.h"
#include "engine/template/template_testing.h"

namespace sluice::engine {
namespace {

using jinja::Value;
using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The supervised pieces of the rendering.
absl::StatusOr<std::vector<std::string>> Pieces(const std::string& source, const std::string& messages,
                                                const RenderOptions& options = OracleOptions()) {
  auto chat_template = ChatTemplate::Compile(source);
  if (!chat_template.ok()) return chat_template.status();
  auto chat = RenderSupervised(**chat_template, ParseOrFail(messages), options);
  if (!chat.ok()) return chat.status();
  std::vector<std::string> pieces;
  for (const Span& span : chat->supervised) pieces.push_back(chat->text.substr(span.begin, span.end - span.begin));
  return pieces;
}

std::vector<std::string> PiecesOrFail(const std::string& source, const std::string& messages) {
  const auto pieces = Pieces(source, messages);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  return pieces.ok() ? *pieces : std::vector<std::string>();
}

std::vector<int32_t> Ints(const Value& list) {
  std::vector<int32_t> ints;
  for (const Value& item : list.items()) ints.push_back(static_cast<int32_t>(item.int_value()));
  return ints;
}

class TokenMaskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::Load("tests/golden/tokenizer/qwen2_style.tokenizer.json");
    ASSERT_OK(tokenizer);
    tokenizer_ = *std::move(tokenizer);
  }

  void ExpectMask(const std::string& text, const std::vector<Span>& spans, const Value& ids, const Value& mask) {
    Encoding encoding = tokenizer_->EncodeWithOffsets(text);
    const size_t kept = ids.items().size();  // some rows are cut on the right
    ASSERT_GE(encoding.ids.size(), kept);
    encoding.ids.resize(kept);
    encoding.ranges.resize(kept);
    EXPECT_EQ(encoding.ids, Ints(ids));
    const std::vector<uint8_t> got = MaskFromSpans(encoding.ranges, spans);
    EXPECT_EQ(std::vector<int32_t>(got.begin(), got.end()), Ints(mask));
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(TokenMaskTest, TurnsOfATemplateThatDropsEarlierThinking) {
  const Value rows = Golden("C04.json");
  ASSERT_OK_AND_ASSIGN(const auto chat_template, ChatTemplate::Compile(GoldenText("C04.jinja")));
  for (const Value& row : rows.items()) {
    SCOPED_TRACE(row.Field("conversation").string());
    RenderOptions options;
    if (row.Field("enable_thinking").is_bool()) options.variables["enable_thinking"] = row.Field("enable_thinking");
    options.add_generation_prompt = row.Field("add_generation_prompt").is_bool();
    if (!row.Field("loss_mask").is_list()) {
      ASSERT_OK_AND_ASSIGN(const RenderedChat chat, chat_template->Render(row.Field("messages"), options));
      EXPECT_EQ(chat.text, row.Field("expected").string());
      continue;
    }
    ASSERT_OK_AND_ASSIGN(const SupervisedChat chat, RenderSupervised(*chat_template, row.Field("messages"), options));
    EXPECT_EQ(chat.text, row.Field("expected").string());
    ExpectMask(chat.text, chat.supervised, row.Field("ids"), row.Field("loss_mask"));
  }
}

TEST_F(TokenMaskTest, GenerationBlocks) {
  const Value rows = Golden("C05.json");
  for (const Value& row : rows.items()) {
    SCOPED_TRACE(row.Field("case").string());
    ASSERT_OK_AND_ASSIGN(const auto chat_template, ChatTemplate::Compile(row.Field("template").string()));
    ASSERT_OK_AND_ASSIGN(const SupervisedChat chat, RenderSupervised(*chat_template, row.Field("messages"), {}));
    EXPECT_EQ(chat.text, row.Field("text").string());
    ExpectMask(chat.text, chat.supervised, row.Field("ids"), row.Field("mask"));
  }
}

TEST(MaskFromSpansTest, ATokenCountsWhereItsBytesOverlap) {
  const std::vector<TextRange> tokens = {{0, 2}, {2, 2}, {2, 5}, {5, 9}, {5, 9}, {9, 10}};
  const auto mask = [&](const std::vector<Span>& spans) {
    const std::vector<uint8_t> bytes = MaskFromSpans(tokens, spans);
    return std::vector<int>(bytes.begin(), bytes.end());
  };
  EXPECT_THAT(mask({}), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(mask({{0, 10}}), ElementsAre(1, 0, 1, 1, 1, 1));
  EXPECT_THAT(mask({{0, 1}, {9, 10}}), ElementsAre(1, 0, 0, 0, 0, 1));
  EXPECT_THAT(mask({{2, 5}}), ElementsAre(0, 0, 1, 0, 0, 0));
  EXPECT_THAT(mask({{4, 6}}), ElementsAre(0, 0, 1, 1, 1, 0));
  EXPECT_THAT(mask({{3, 3}}), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(mask({{10, 20}}), ElementsAre(0, 0, 0, 0, 0, 0));
}

constexpr char kChatMl[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
constexpr char kTwoTurns[] =
    R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b \n"},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}])";

TEST(RenderSupervisedTest, ATurnEndsWithItsMark) {
  EXPECT_THAT(PiecesOrFail(kChatMl, kTwoTurns), ElementsAre("b \n<|im_end|>", "d<|im_end|>"));
}

TEST(RenderSupervisedTest, WithoutAMarkTheContentsOwnSpaceStays) {
  EXPECT_THAT(PiecesOrFail("{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}"
                           "{% if add_generation_prompt %}assistant: {% endif %}",
                           kTwoTurns),
              ElementsAre("b \n", "d"));
}

TEST(RenderSupervisedTest, ATemplateWithoutGenerationPrompt) {
  EXPECT_THAT(PiecesOrFail("{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
                           "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}",
                           kTwoTurns),
              ElementsAre("b \n</s>", "d</s>"));
}

TEST(RenderSupervisedTest, APromptThatGoesOnBehindTheHeader) {  // thinking switched off in the prompt only
  const std::string source = std::string(kChatMl) + "{% if add_generation_prompt %}<think>\n\n</think>\n\n{% endif %}";
  EXPECT_THAT(PiecesOrFail(source, kTwoTurns), ElementsAre("b \n<|im_end|>", "d<|im_end|>"));
}

TEST(RenderSupervisedTest, AnAnswerThatRepeatsTheQuestionOrTheHeader) {
  EXPECT_THAT(PiecesOrFail(kChatMl, R"([{"role": "user", "content": "<|im_start|>assistant\nx"},
                                        {"role": "assistant", "content": "<|im_start|>assistant\nx"}])"),
              ElementsAre("<|im_start|>assistant\nx<|im_end|>"));
}

TEST(RenderSupervisedTest, EarlierTurnsThatLookDifferentInTheEnd) {
  // Thinking is shown since the last user message only; the second turn of two has its predecessor's thinking dropped.
  const std::string source =
      "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
      "{% endif %}{% endfor %}{% for m in messages %}<{{ m.role }}>{% if m.thinking and loop.index0 > ns.last %}"
      "({{ m.thinking }}){% endif %}{{ m.content }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif "
      "%}";
  EXPECT_THAT(PiecesOrFail(source, R"([{"role": "user", "content": "q"},
                                       {"role": "assistant", "content": "a", "thinking": "one"},
                                       {"role": "tool", "content": "r"},
                                       {"role": "assistant", "content": "b", "thinking": "two"},
                                       {"role": "user", "content": "q2"},
                                       {"role": "assistant", "content": "c", "thinking": "three"}])"),
              ElementsAre("a</>", "b</>", "(three)c</>"));
}

TEST(RenderSupervisedTest, OnlyAssistantTurnsAreSupervised) {
  EXPECT_THAT(PiecesOrFail(kChatMl, R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])"),
              ElementsAre());
  EXPECT_THAT(PiecesOrFail(kChatMl, "[]"), ElementsAre());
  EXPECT_THAT(PiecesOrFail(kChatMl, R"([{"role": "assistant", "content": "first"}, {"role": "user", "content": "u"}])"),
              ElementsAre("first<|im_end|>"));
}

TEST(RenderSupervisedTest, ATurnThatCannotBeFoundIsAnErrorThatSaysWhatToDo) {
  EXPECT_THAT(
      Pieces("{% for m in messages %}{{ m.content | upper }}{{ m.content }}{% endfor %}{{ messages | length }}",
             R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                         {"role": "user", "content": "c"}])"),
      StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("messages[1]"), HasSubstr("{% generation %}"))));
  EXPECT_THAT(Pieces("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}", "[]"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("set block")));
  EXPECT_THAT(Pieces("{{ nope.x }}", "[]"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("chat template line 1")));
  RenderOptions prompted;
  prompted.add_generation_prompt = true;
  EXPECT_THAT(Pieces(kChatMl, kTwoTurns, prompted), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("prompt")));
}

TEST(RenderSupervisedTest, NestedGenerationBlocksAreOneSpan) {
  EXPECT_THAT(PiecesOrFail("{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}d", "[]"),
              ElementsAre("abc"));
}

// For every published template that takes the conversation: each answer is in its span, no question is in any.
TEST(RenderSupervisedTest, PublishedTemplates) {
  const auto shared = testing::SharedDir();
  if (!shared.has_value() || !std::filesystem::exists(*shared / "data" / "chat-templates")) {
    GTEST_SKIP() << "the published templates are not there (SLUICE_SHARED/data/chat-templates)";
  }
  const Value messages = ParseOrFail(
      R"([{"role": "user", "content": "QuestionOne"}, {"role": "assistant", "content": "AnswerOne"},
          {"role": "user", "content": "QuestionTwo"}, {"role": "assistant", "content": "AnswerTwo"}])");
  std::string refused;
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*shared / "data" / "chat-templates")) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path().stem().string());
    RenderOptions options = OracleOptions();
    options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    ASSERT_OK_AND_ASSIGN(const auto chat_template, ChatTemplate::Compile(*ReadFileIfThere(entry.path())));
    if (!chat_template->Render(messages, options).ok()) continue;
    const auto chat = RenderSupervised(*chat_template, messages, options);
    if (!chat.ok()) {
      refused += entry.path().stem().string() + ": " + std::string(chat.status().message()) + "\n";
      continue;
    }
    ++found;
    ASSERT_EQ(chat->supervised.size(), 2u) << chat->text;
    for (size_t i = 0; i < 2; ++i) {
      const Span& span = chat->supervised[i];
      const std::string piece = chat->text.substr(span.begin, span.end - span.begin);
      EXPECT_THAT(piece, HasSubstr(i == 0 ? "AnswerOne" : "AnswerTwo"));
      EXPECT_LT(piece.size(), 120u) << piece;
      for (const char* outside : {"Question", "assistant", "user", "<|im_start|>", "[INST]"}) {
        EXPECT_THAT(piece, ::testing::Not(HasSubstr(outside)));
      }
    }
  }
  EXPECT_GE(found, 30u) << refused;  // some always write a generation prompt, and are refused
}

}  // namespace
}  // namespace sluice::engine
