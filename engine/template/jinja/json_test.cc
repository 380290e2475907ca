#include "engine/template/jinja/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "engine/template/jinja/python_text.h"

namespace sluice::engine::jinja {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::StartsWith;

std::string RoundTrip(const std::string& text) {
  const auto value = ParseJson(text);
  if (!value.ok()) return std::string(value.status().message());
  const auto json = ToJson(*value);
  return json.ok() ? *json : std::string(json.status().message());
}

TEST(JsonTest, KeepsOrderNumbersAndText) {
  for (const char* text : {
           R"({"b": 1, "a": [1.0, -0.0, 1e+16, 1e-07, 0], "c": {}, "d": []})",
           R"([18446744073709551616, -9223372036854775808, -9223372036854775809, 9223372036854775807])",
           R"(["\"\\\b\f\n\r\t\u0000\u001f", "é—你🙂", true, false, null])",
       }) {
    EXPECT_EQ(RoundTrip(text), text);
  }
}

TEST(JsonTest, ReadsWhatPythonReads) {
  EXPECT_EQ(RoundTrip(" [ 1 ,\n2\t]\r\n"), "[1, 2]");
  EXPECT_EQ(RoundTrip(R"({"a": 1, "b": 2, "a": 3})"), R"({"a": 3, "b": 2})");
  EXPECT_EQ(RoundTrip(R"(["\u00e9\ud83d\ude42\/", "\ud83d", "\ude42\u0041"])"),
            "[\"é🙂/\", \"\uFFFD\", \"\uFFFDA\"]");
  EXPECT_EQ(RoundTrip("[-0, 1E5, 1e999, 0.10]"), "[0, 100000.0, Infinity, 0.1]");
}

TEST(JsonTest, ErrorsNameTheByte) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not valid JSON at byte 0:"},
      {"[1,]", "not valid JSON at byte 3:"},
      {"[1 2]", "not valid JSON at byte 3:"},
      {R"({"a" 1})", "not valid JSON at byte 5:"},
      {"{a: 1}", "not valid JSON at byte 1:"},
      {"\"abc", "not valid JSON at byte 4:"},
      {"\"a\nb\"", "not valid JSON at byte 2:"},
      {R"("\x")", "not valid JSON at byte 2:"},
      {R"("\u12g4")", "not valid JSON at byte 3:"},
      {"1 2", "not valid JSON at byte 2:"},
      {"01", "not valid JSON at byte 1:"},
      {"-", "not valid JSON at byte 0:"},
      {"tru", "not valid JSON at byte 0:"},
      {"1.", "not valid JSON at byte 1:"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseJson(text), StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(message))) << text;
  }
  EXPECT_THAT(ParseJson(std::string(100'000, '[')),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("not valid")));
}

TEST(JsonTest, TooLongIsAnError) {
  JsonOptions options;
  options.max_bytes = 10;
  EXPECT_THAT(ToJson(Value::String("12345678901"), options),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("the text of tojson")));
}

TEST(ValueTest, LargeDictsFindTheirKeys) {
  Dict dict;
  for (int i = 0; i < 100; ++i) dict.Set("key" + std::to_string(i), Value::Int(i));
  dict.Set("key7", Value::Int(-7));
  ASSERT_EQ(dict.size(), 100u);
  EXPECT_EQ(dict.Find("key99")->int_value(), 99);
  EXPECT_EQ(dict.Find("key7")->int_value(), -7);
  EXPECT_EQ(dict.items()[7].first.string(), "key7");
  EXPECT_EQ(dict.Find("key100"), nullptr);
}

TEST(ValueTest, BigIntegersCompareByValue) {
  const Value big = Value::Integer("18446744073709551616");
  const Value negative = Value::Integer("-18446744073709551616");
  EXPECT_TRUE(*IsLess(Value::Int(5), big));
  EXPECT_TRUE(*IsLess(negative, Value::Int(-5)));
  EXPECT_FALSE(*IsLess(big, negative));
  EXPECT_TRUE(IsEqual(big, Value::Integer("0018446744073709551616")));
  EXPECT_EQ(Value::Integer("-000").kind(), Value::Kind::kInt);
  EXPECT_EQ(Str(Value::Integer("0000000000000000000000000000042")), "42");
}

}  // namespace
}  // namespace sluice::engine::jinja
