#include "common/config/scalar.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/config/suggest.h"
#include "common/config/yaml_document.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

// What a key of the named type makes of the YAML text of one value; nullopt: an error; JSON null: unset.
std::optional<nlohmann::json> Value(const std::string& type, const YamlNode& node) {
  const auto json = [](const auto& value) -> std::optional<nlohmann::json> {
    if (!value.ok()) return std::nullopt;
    return nlohmann::json(*value);
  };
  if (type.rfind("list of ", 0) == 0) {
    if (node.kind != YamlNode::Kind::kList) return std::nullopt;
    nlohmann::json list = nlohmann::json::array();
    for (const YamlNode& item : node.items) {
      const auto element = Value(type.substr(8), item);
      if (!element) return std::nullopt;
      list.push_back(*element);
    }
    return list;
  }
  if (node.kind == YamlNode::Kind::kNull && type == "string") return nlohmann::json();
  if (node.kind != YamlNode::Kind::kScalar) return std::nullopt;
  if (type == "string") return nlohmann::json(node.text);
  if (type == "float") return json(ParseNumber(node.text));
  if (type == "int" || type == "seconds") return json(ParseInteger(node.text));
  if (type == "bool") return json(ParseTruth(node.text));
  if (type == "one of fsdp2, ddp") return json(ParseChoice(node.text, {"fsdp2", "ddp"}));
  return std::nullopt;  // "bytes": no key has this type; an error is among its right outcomes
}

TEST(ScalarTest, ValuesByTheTypeOfTheKey) {
  std::ifstream file("tests/golden/config/scalars.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 93u);
  for (const auto& c : cases) {
    SCOPED_TRACE(c.dump());
    std::vector<ConfigError> errors;
    const auto node = ParseYaml(c.at("yaml"), "case", &errors);
    const auto got = node ? Value(c.at("type"), *node) : std::nullopt;
    if (c.contains("error")) {
      EXPECT_FALSE(got.has_value()) << got->dump();
    } else if (got.has_value()) {
      EXPECT_EQ(*got, c.at("value"));
    } else {
      EXPECT_TRUE(c.value("error_also_fine", false));
    }
  }
}

TEST(ScalarTest, EdgesOfNumbers) {
  for (const char* bad : {"", "-", "+", ".", "1.2.3", "--1", "1e+", " 1", "1 ", "0x10", "1_0", "inf", "nan", "1e309",
                          "-1e309", "1e-324"}) {
    EXPECT_FALSE(ParseNumber(bad).ok()) << bad;
    EXPECT_FALSE(ParseInteger(bad).ok()) << bad;
  }
  EXPECT_EQ(*ParseNumber("1e-320"), 1e-320);  // subnormal, not zero
  EXPECT_EQ(*ParseNumber("0e-999"), 0.0);
  EXPECT_EQ(*ParseNumber("+.5"), 0.5);
  EXPECT_EQ(*ParseInteger("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*ParseInteger("+010"), 10);
}

TEST(ScalarTest, MessagesSayWhatIsWrong) {
  EXPECT_THAT(ParseInteger("8.5"),
              StatusIs(absl::StatusCode::kInvalidArgument, "expected a whole number, got \"8.5\""));
  EXPECT_THAT(ParseInteger("9223372036854775808"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("64 bits")));
  EXPECT_THAT(ParseChoice("cosin", {"constant", "cosine"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "expected one of constant, cosine, got \"cosin\" (did you mean cosine?)"));
  EXPECT_EQ(Quoted("a\"b\n\x01"), "\"a\\\"b\\n\\x01\"");
}

TEST(ScalarTest, BoundsAreInclusiveOrNotAsWritten) {
  v1::KeyOptions options;
  options.set_min(0);
  options.set_below(1);
  EXPECT_OK(CheckBounds(0, options));
  EXPECT_OK(CheckBounds(0.999, options));
  EXPECT_THAT(CheckBounds(1, options), StatusIs(absl::StatusCode::kInvalidArgument, "must be below 1, is 1"));
  EXPECT_THAT(CheckBounds(-0.5, options), StatusIs(absl::StatusCode::kInvalidArgument, "must be at least 0, is -0.5"));
  EXPECT_FALSE(CheckBounds(std::numeric_limits<double>::quiet_NaN(), options).ok());
}

TEST(ScalarTest, NumbersPrintShortest) {
  EXPECT_EQ(FormatNumber(1e-5), "1e-05");
  EXPECT_EQ(FormatNumber(0.1), "0.1");
  EXPECT_EQ(FormatNumber(30), "30");
}

TEST(SuggestTest, NearestWord) {
  EXPECT_EQ(EditDistance("weigth", "weight"), 1);  // two neighbours swapped
  EXPECT_EQ(EditDistance("größe", "grösse"), 2);
  EXPECT_EQ(Nearest("trianer", {"model", "trainer"}), "trainer");
  EXPECT_EQ(Nearest("learning_rate", {"lr", "eps"}), "lr");
  EXPECT_EQ(Nearest("banana", {"lr", "eps", "trainer"}), std::nullopt);
}

}  // namespace
}  // namespace sluice
