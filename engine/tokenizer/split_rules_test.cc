#include "engine/tokenizer/split_rules.h"

#include <gtest/gtest.h>

#include <random>

#include "common/testing/status_matchers.h"
#include "engine/tokenizer/pattern.h"
#include "engine/tokenizer/testing/golden.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

std::vector<std::string> PiecesOf(SplitRule rule, const std::string& text) {
  std::vector<std::string> pieces;
  ForEachPiece(rule, text, [&](size_t begin, size_t end) { pieces.push_back(text.substr(begin, end - begin)); });
  return pieces;
}

TEST(SplitRulesTest, FieldCases) {
  int checked = 0;
  for (const auto& row : testing::ReadLines(testing::GoldenPath("T01.jsonl"))) {
    if (!row.contains("pieces")) continue;
    EXPECT_EQ(PiecesOf(SplitRule::kLlama3, row["text"]), row["pieces"].get<std::vector<std::string>>()) << row.dump();
    ++checked;
  }
  EXPECT_GT(checked, 50);
}

// Characters on which the regex engine's Unicode tables agree with ours: what matters for the rules, and a few of each
// class.
std::string RandomText(std::mt19937* random) {
  static constexpr uint32_t kChars[] = {' ',    ' ',     ' ',     '\n',  '\r', '\t',   '\'',   '\'',  's',    'S',
                                        't',    'r',     'e',     'v',   'L',  'l',    'm',    'd',   'D',    'x',
                                        '1',    '2',     '3',     '_',   '.',  '!',    0x17F,  0x85,  0xA0,   0x3000,
                                        0x2028, 0x180E,  0x200B,  0x664, 0xBD, 0xE9,   0x301,  0x94D, 0x4F60, 0xFF0C,
                                        0x2019, 0x1F44D, 0x1D7D8, 0x0B,  0x1C, 0x2167, 0x212A, 0xFFFD};
  std::string text;
  const size_t length = (*random)() % 14;
  for (size_t i = 0; i < length; ++i) AppendUtf8(kChars[(*random)() % std::size(kChars)], &text);
  return text;
}

TEST(SplitRulesTest, EqualTheRegularExpressions) {
  const std::pair<SplitRule, std::string_view> rules[] = {{SplitRule::kGpt2, kGpt2Expression},
                                                          {SplitRule::kQwen2, kQwen2Expression},
                                                          {SplitRule::kLlama3, kLlama3Expression}};
  std::mt19937 random(1);
  for (const auto& [rule, expression] : rules) {
    EXPECT_EQ(SplitRuleFor(expression), rule);
    ASSERT_OK_AND_ASSIGN(const Pattern pattern, Pattern::Regex(expression));
    for (int round = 0; round < 30000; ++round) {
      const std::string text = RandomText(&random);
      std::vector<std::string> matches;
      pattern.ForEachMatch(text, [&](size_t begin, size_t end) { matches.push_back(text.substr(begin, end - begin)); });
      ASSERT_EQ(PiecesOf(rule, text), matches) << ::testing::PrintToString(text);
    }
  }
}

TEST(SplitRulesTest, OtherExpressionsHaveNoRule) { EXPECT_EQ(SplitRuleFor(R"(\p{L}+)"), std::nullopt); }

}  // namespace
}  // namespace sluice::engine
