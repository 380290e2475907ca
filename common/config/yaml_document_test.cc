#include "common/config/yaml_document.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ReadDocument(const std::string& name) {
  std::ifstream file("tests/golden/config/documents/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Errors(const std::string& text, const YamlLimits& limits = {}) {
  std::vector<ConfigError> errors;
  const auto node = ParseYaml(text, "f.yaml", &errors, limits);
  EXPECT_EQ(node.has_value(), errors.empty());
  return absl::StrJoin(errors, "\n", [](std::string* out, const ConfigError& e) { absl::StrAppend(out, ToString(e)); });
}

// Every scalar as its text: types belong to keys.
nlohmann::json ToJson(const YamlNode& node) {
  nlohmann::json json;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      break;
    case YamlNode::Kind::kScalar:
      json = node.text;
      break;
    case YamlNode::Kind::kList:
      json = nlohmann::json::array();
      for (const YamlNode& item : node.items) json.push_back(ToJson(item));
      break;
    case YamlNode::Kind::kMap:
      json = nlohmann::json::object();
      for (const YamlEntry& entry : node.entries) json[entry.key] = ToJson(entry.value);
      break;
  }
  return json;
}

nlohmann::json Parse(const std::string& text) {
  std::vector<ConfigError> errors;
  const auto node = ParseYaml(text, "f.yaml", &errors);
  EXPECT_TRUE(node.has_value()) << ToStatus(errors);
  return node ? ToJson(*node) : nlohmann::json();
}

TEST(YamlDocumentTest, DocumentsWithAValue) {
  EXPECT_EQ(Parse(ReadDocument("anchor_merge.yaml")),
            R"({"defaults": {"temperature": "1.0", "top_p": "0.9"}, "rollout": {"temperature": "1.0", "top_p": "1.0"},
                "validation": {"temperature": "1.0", "top_p": "0.9"}})"_json);
  EXPECT_EQ(Parse(ReadDocument("merge_list.yaml"))["c"], R"({"x": "1", "y": "3", "z": "4"})"_json);
  EXPECT_EQ(Parse(ReadDocument("unicode.yaml")),
            R"({"run_name": "größe 模型 🙂", "tags": {"größe": "大", "ключ": "значение"}})"_json);
  EXPECT_EQ(Parse(ReadDocument("bom_crlf.yaml")), R"({"optim": {"lr": "1.0e-5"}})"_json);
  EXPECT_EQ(Parse(ReadDocument("empty.yaml")), nlohmann::json());
}

TEST(YamlDocumentTest, DocumentsWithAnError) {
  EXPECT_EQ(Errors(ReadDocument("duplicate_top.yaml")),
            "f.yaml:3: optim: the key is given twice (lines 1 and 3); which one is meant?");
  EXPECT_EQ(Errors(ReadDocument("duplicate_nested.yaml")),
            "f.yaml:4: optim.lr: the key is given twice (lines 2 and 4); which one is meant?");
  EXPECT_EQ(Errors(ReadDocument("duplicate_other_spelling.yaml")),
            "f.yaml:3: optim.lr: the key is given twice (lines 2 and 3); which one is meant?");
  EXPECT_EQ(Errors(ReadDocument("tab.yaml")), "f.yaml:2: optim: a tab in the indentation (YAML indents with spaces)");
  EXPECT_EQ(Errors(ReadDocument("two_documents.yaml")),
            "f.yaml:2: a second document begins here; a job file holds one");
  EXPECT_EQ(Errors(ReadDocument("bad_utf8.yaml")), "f.yaml:1: not UTF-8 at byte 13");
  EXPECT_EQ(Errors(ReadDocument("self_alias.yaml")), "f.yaml:2: a.b: an alias inside the value that it stands for");
  EXPECT_EQ(Errors(ReadDocument("key_is_map.yaml")), "f.yaml:1: a key must be a text, this one is a map");
  EXPECT_THAT(Errors(ReadDocument("deep.yaml")), HasSubstr("nested more than 32 levels deep"));
  EXPECT_THAT(Errors(ReadDocument("aliases.yaml")),
              AllOf(HasSubstr("f.yaml:5: e["), HasSubstr("more than 100000 values")));
}

TEST(YamlDocumentTest, ErrorsOfItsOwnKind) {
  EXPECT_THAT(Errors("a: [1, 2\nb: 3\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(Errors("a: *b\n"), HasSubstr("f.yaml:1:"));
  EXPECT_THAT(Errors("a: !!python/object:os.system x\n"), HasSubstr("a: tags ("));
  EXPECT_THAT(Errors("a: !!int '3'\n"), HasSubstr("tags ("));
  EXPECT_THAT(Errors("~: 1\n"), HasSubstr("a key must be a text"));
  EXPECT_THAT(Errors("[1]: 1\n"), HasSubstr("a key must be a text, this one is a list"));
  EXPECT_THAT(Errors("a: 1\nb: \"x\x01y\"\n"), HasSubstr("f.yaml:2: control character \"\\x01\" at byte 10"));
  EXPECT_THAT(Errors("a: {<<: 3}\n"), HasSubstr("'<<' merges maps"));
  EXPECT_THAT(Errors("a: {b: 1, b: 2}\nc: 1\nc: 2\n"), AllOf(HasSubstr("a.b:"), HasSubstr("c:")));  // all at once
  EXPECT_THAT(Errors(std::string(100, ' '), {.bytes = 99}), HasSubstr("more than the limit of 99"));
  EXPECT_THAT(Errors("\xEF\xBB\xBF"), IsEmpty());
  EXPECT_THAT(Errors("a: \xED\xA0\x80\n"), HasSubstr("not UTF-8"));      // a surrogate
  EXPECT_THAT(Errors("a: \xC0\xAF\n"), HasSubstr("not UTF-8"));          // overlong
  EXPECT_THAT(Errors("a: \xF4\x90\x80\x80\n"), HasSubstr("not UTF-8"));  // above U+10FFFF
}

TEST(YamlDocumentTest, TabsThatAreContentAreFine) {
  EXPECT_EQ(Parse("a: |\n  x\n  \ty\n")["a"], "x\n\ty\n");
  EXPECT_EQ(Parse("a:\t1\n")["a"], "1");
}

TEST(YamlDocumentTest, LinesPointAtValues) {
  std::vector<ConfigError> errors;
  const auto node = ParseYaml("a:\n  b: 1\n\n  c: [x,\n    y]\n", "f.yaml", &errors);
  ASSERT_TRUE(node.has_value());
  const YamlNode& a = node->entries[0].value;
  EXPECT_EQ(a.entries[1].line, 4);
  EXPECT_EQ(a.entries[1].value.items[1].line, 5);
}

TEST(YamlDocumentTest, RemembersQuotes) {
  std::vector<ConfigError> errors;
  const auto node = ParseYaml("[a, 'null', \"~\", null]", "f.yaml", &errors);
  ASSERT_TRUE(node.has_value());
  EXPECT_TRUE(node->items[0].plain);
  EXPECT_FALSE(node->items[1].plain);
  EXPECT_EQ(node->items[2].text, "~");
  EXPECT_EQ(node->items[3].kind, YamlNode::Kind::kNull);
}

}  // namespace
}  // namespace sluice
