#include "engine/template/chat_template.h"

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
using ::testing::HasSubstr;
using ::testing::StartsWith;

// One row {template, context, expected | error} of a golden file.
void ExpectRow(const Value& row) {
  const std::string source = row.Field("template").string();
  SCOPED_TRACE(source);
  RenderOptions options = OracleOptions();
  options.variables = Fields(row.Field("context"));
  const auto messages = options.variables.find("messages");
  const auto chat =
      RenderSource(source, messages == options.variables.end() ? Value::None() : messages->second, options);
  if (row.Field("error").is_string()) {
    EXPECT_THAT(chat, StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("chat template line ")))
        << (chat.ok() ? chat->text : "");
    return;
  }
  ASSERT_OK(chat);
  EXPECT_EQ(chat->text, row.Field("expected").string());
}

TEST(ChatTemplateTest, RendersEachConstructAsJinja2) {
  const Value rows = Golden("constructs.json").Field("cases");
  ASSERT_GT(rows.items().size(), 200u);
  for (const Value& row : rows.items()) ExpectRow(row);
}

TEST(ChatTemplateTest, TreatsWhiteSpaceAsTransformersDoes) {
  const Value rows = Golden("C01.json");
  for (const Value& row : rows.items()) ExpectRow(row);
}

TEST(ChatTemplateTest, WritesJsonAsTransformersDoes) {
  const Value rows = Golden("C02.json");
  for (const Value& row : rows.items()) ExpectRow(row);
}

TEST(ChatTemplateTest, RendersToolCallsAsGiven) {
  const Value rows = Golden("C03.json");
  const Value& head = rows.items()[0];
  const Value tools = head.Field("tools_for_conversation_dict");
  for (size_t i = 1; i < rows.items().size(); ++i) {
    const Value& row = rows.items()[i];
    const std::string name = row.Field("conversation").string();
    RenderOptions options;
    if (name == "dict") options.tools = &tools;
    const Value prompted_names = head.Field("add_generation_prompt_for");
    for (const Value& prompted : prompted_names.items()) {
      options.add_generation_prompt |= prompted.string() == name;
    }
    for (const auto& [source_name, outcome] : Fields(row.Field("outcome"))) {
      SCOPED_TRACE(name + " " + source_name);
      const auto chat = RenderSource(GoldenText(source_name + ".jinja"), row.Field("messages"), options);
      if (outcome.Field("error").is_string()) {
        EXPECT_THAT(chat, StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("chat template line ")));
      } else {
        ASSERT_OK(chat);
        EXPECT_EQ(chat->text, outcome.Field("expected").string());
      }
    }
  }
}

// Renders every conversation with one published template and compares each with "bytes:hash" or an error's type.
void ExpectPublished(const std::string& source, const Value& renderings, const Value& conversations,
                     const std::map<std::string, Value>& special_tokens) {
  ASSERT_OK_AND_ASSIGN(const auto chat_template, ChatTemplate::Compile(source));
  for (size_t i = 0; i < conversations.items().size(); ++i) {
    const Value& conversation = conversations.items()[i];
    const Value tools = conversation.Field("tools");
    RenderOptions options = OracleOptions();
    if (!tools.is_undefined()) options.tools = &tools;
    options.variables = Fields(conversation.Field("variables"));
    for (const auto& [name, token] : special_tokens) options.special_tokens[name] = token.string();
    for (const bool add_generation_prompt : {false, true}) {
      SCOPED_TRACE(conversation.Field("name").string() + (add_generation_prompt ? " --prompt" : ""));
      options.add_generation_prompt = add_generation_prompt;
      const auto chat = chat_template->Render(conversation.Field("messages"), options);
      const std::string& expected = renderings.items()[i].items()[add_generation_prompt].string();
      if (expected.find(':') == std::string::npos) {
        EXPECT_FALSE(chat.ok()) << "jinja2 raises " << expected << "; got:\n" << chat->text;
        continue;
      }
      ASSERT_OK(chat);
      EXPECT_EQ(std::to_string(chat->text.size()) + ":" + Fnv1a(chat->text), expected) << chat->text;
    }
  }
}

TEST(ChatTemplateTest, RendersPublishedTemplatesAsJinja2) {
  const auto shared = testing::SharedDir();
  if (!shared.has_value() || !std::filesystem::exists(*shared / "data" / "chat-templates")) {
    GTEST_SKIP() << "the published templates are not there (SLUICE_SHARED/data/chat-templates)";
  }
  const Value golden = Golden("published.json");
  const Value templates = golden.Field("templates");
  ASSERT_GE(templates.items().size(), 35u);
  for (const Value& row : templates.items()) {
    const std::string name = row.Field("template").string();
    SCOPED_TRACE(name);
    const auto source = ReadFileIfThere(*shared / "data" / "chat-templates" / (name + ".jinja"));
    ASSERT_TRUE(source.has_value());
    ExpectPublished(*source, row.Field("renderings"), golden.Field("conversations"),
                    Fields(golden.Field("special_tokens")));
  }
}

TEST(ChatTemplateTest, ErrorsNameTheLine) {
  const auto line_of = [](const std::string& source) { return RenderSource(source, Value::None(), {}).status(); };
  EXPECT_THAT(line_of("a\n\n{{ x.y }}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "chat template line 3: 'x' is undefined"));
  EXPECT_THAT(line_of("{% macro m() %}\n{{ raise_exception('no') }}{% endmacro %}\n\n{{ m() }}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "chat template line 2: no"));
  EXPECT_THAT(line_of("a\n{% if 1 %}\n"), StatusIs(absl::StatusCode::kInvalidArgument,
                                                   AllOf(StartsWith("chat template line 2"), HasSubstr("endif"))));
  EXPECT_THAT(line_of("\n{{ 1 | nope }}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "chat template line 2: no filter named 'nope'"));
  EXPECT_THAT(line_of("{{ strftime_now('%Y') }}"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none was given")));
}

TEST(ChatTemplateTest, HostileTemplatesEndWithAnError) {
  RenderOptions options;
  options.limits.max_output_bytes = 1 << 20;
  options.limits.max_list_items = 10'000;
  options.limits.max_steps = 200'000;
  const std::string deep(100'000, '(');
  const std::string hostile[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}0123456789abcdef{% endfor %}",
      "{{ 'a' * 1000000000000 }}",
      "{{ [1] * 1000000000000 }}",
      "{{ 'a'.center(100000000000) }}",
      "{{ '%99999999999d' % 1 }}",
      "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "{% set ns = namespace(l=1) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=1) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson "
      "}}",
      "{% set n = namespace(a=1, b=1) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}"
      "{% endfor %}{{ n.a == n.b }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{{ " + deep,
      "{{ " + std::string(100'000, '-') + "1 }}",
      "{{ " + std::string(100'000, '[') + "1",
  };
  for (const std::string& source : hostile) {
    EXPECT_THAT(RenderSource(source, Value::None(), options),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("chat template line ")))
        << source.substr(0, 100);
  }
}

TEST(ChatTemplateTest, NamespacesAndMacrosThatHoldEachOtherAreFreed) {  // a leak would fail under a sanitizer
  EXPECT_OK(
      RenderSource("{% set ns = namespace() %}{% set ns.self = ns %}{% macro m() %}{{ m }}{% endmacro %}"
                   "{% for i in [1, 2] %}{% macro n() %}{{ i }}{% endmacro %}{% set ns.n = n %}{% endfor %}",
                   Value::None(), {}));
}

TEST(ChatTemplateTest, ReportsGenerationSpans) {
  ASSERT_OK_AND_ASSIGN(
      const auto chat_template,
      ChatTemplate::Compile("{% for m in messages %}[{% generation %}{{ m }}{% endgeneration %}]{% endfor %}"));
  EXPECT_TRUE(chat_template->has_generation_blocks());
  ASSERT_OK_AND_ASSIGN(const RenderedChat chat,
                       chat_template->Render(Value::List({Value::String("é"), Value::String("")}), {}));
  EXPECT_EQ(chat.text, "[é][]");
  EXPECT_EQ(chat.generation_spans, (std::vector<Span>{{1, 3}, {5, 5}}));
  EXPECT_FALSE(chat.has_captured_generation);
}

TEST(ChatTemplateTest, SaysWhenAGenerationBlockIsCaptured) {
  ASSERT_OK_AND_ASSIGN(
      const RenderedChat chat,
      RenderSource("{% set x %}{% generation %}a{% endgeneration %}{% endset %}b{{ x }}", Value::None(), {}));
  EXPECT_EQ(chat.text, "ba");
  EXPECT_TRUE(chat.has_captured_generation);
  EXPECT_TRUE(chat.generation_spans.empty());
}

TEST(ChatTemplateTest, VariablesWinOverSpecialTokens) {
  RenderOptions options;
  options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  options.variables = {{"bos_token", Value::String("<B>")}};
  ASSERT_OK_AND_ASSIGN(const RenderedChat chat,
                       RenderSource("{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ tools is none }}",
                                    Value::None(), options));
  EXPECT_EQ(chat.text, "<B></s>FalseTrue");
}

}  // namespace
}  // namespace sluice::engine
