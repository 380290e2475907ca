#include "engine/rollout/stop_matcher.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

nlohmann::json Read(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

std::unique_ptr<const Tokenizer> Load(const std::string& name) {
  auto tokenizer = Tokenizer::Load("tests/golden/tokenizer/" + name + ".tokenizer.json");
  EXPECT_OK(tokenizer);
  return *std::move(tokenizer);
}

TEST(StopMatcherTest, FindsStringsAcrossTokens) {
  const auto tokenizer = Load("qwen2_style");
  const nlohmann::json golden = Read("tests/golden/sampling/R01.json");
  ASSERT_EQ(golden.at("cases").size(), 11u);
  for (const auto& c : golden.at("cases")) {
    SCOPED_TRACE(c["case"].get<std::string>());
    StopMatcher matcher(
        *tokenizer, {}, c["stop"].get<std::vector<std::string>>(),
        {.decode = {.skip_special_tokens = false}, .include_stop = c.value("include_stop_in_output", false)});
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    const auto safe = c["safe_text_after_each_token"].get<std::vector<std::string>>();
    size_t kept = 0;
    bool matched = false, ended = false;
    while (kept < ids.size() && !matched && !ended) {
      const int32_t id = ids[kept++];
      ended = id == c.value("stop_token_id", -1);
      if (ended) break;
      matched = matcher.Push(id);
      if (!matched && kept <= safe.size()) {
        EXPECT_EQ(matcher.safe_text(), safe[kept - 1]) << "after token " << kept;
      }
    }
    if (!matched) {
      EXPECT_FALSE(matcher.Finish());
    }
    EXPECT_EQ(matcher.text(), c["text"].get<std::string>());
    EXPECT_EQ(kept, c["tokens_kept"].get<size_t>());
    EXPECT_EQ(matched, c["finish"] == "stop_string");
    EXPECT_EQ(ended, c["finish"] == "stop_token");
    EXPECT_EQ(matcher.matched().value_or(""), c.value("stopped_by", ""));
  }
}

TEST(StopMatcherTest, TextIsWholeHoweverTokensCutIt) {
  const nlohmann::json golden = Read("tests/golden/tokenizer/R02.json");
  ASSERT_EQ(golden.at("cases").size(), 13u);
  for (const auto& c : golden.at("cases")) {
    SCOPED_TRACE(c["case"].get<std::string>());
    const auto tokenizer = Load(c["tokenizer"].get<std::string>());
    const auto prompt = c.value("prompt_ids", std::vector<int32_t>());
    StopMatcher matcher(*tokenizer, prompt, {"never in the text"},
                        {.decode = {.skip_special_tokens = c["skip_special_tokens"].get<bool>()}});
    for (const int32_t id : c["ids"].get<std::vector<int32_t>>()) ASSERT_FALSE(matcher.Push(id));
    EXPECT_FALSE(matcher.Finish());
    EXPECT_EQ(matcher.text(),
              c.contains("shown") ? c["shown"].get<std::string>() : c["full_decode"].get<std::string>());
  }
}

TEST(StopMatcherTest, OfStringsThatEndTogetherTheLongestIsCut) {
  const auto tokenizer = Load("qwen2_style");
  StopMatcher matcher(*tokenizer, {}, {"o", "hello", "llo"});
  bool matched = false;
  for (const int32_t id : tokenizer->Encode("say hello")) matched = matcher.Push(id);
  EXPECT_TRUE(matched);
  EXPECT_EQ(matcher.text(), "say ");
  EXPECT_EQ(matcher.matched(), "hello");
}

TEST(StopMatcherTest, NothingMatchesWhileNotArmed) {
  const auto tokenizer = Load("qwen2_style");
  StopMatcher matcher(*tokenizer, {}, {"b"});
  EXPECT_FALSE(matcher.Push(tokenizer->Encode("b")[0], /*armed=*/false));
  EXPECT_FALSE(matcher.Push(tokenizer->Encode("a")[0]));
  EXPECT_TRUE(matcher.Push(tokenizer->Encode("b")[0]));
  EXPECT_EQ(matcher.text(), "ba");
}

// The text ends inside a character that a stop string holds as U+FFFD: only the flush shows it.
TEST(StopMatcherTest, TheFlushMayCompleteAString) {
  const auto tokenizer = Load("qwen2_style");
  StopMatcher matcher(*tokenizer, {}, {"\xEF\xBF\xBD"});
  EXPECT_FALSE(matcher.Push(64));
  EXPECT_FALSE(matcher.Push(172));
  EXPECT_TRUE(matcher.Finish());
  EXPECT_EQ(matcher.text(), "a");
}

}  // namespace
}  // namespace sluice::engine
