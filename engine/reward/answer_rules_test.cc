#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/reward/answer_text.h"
#include "engine/reward/exact_number.h"
#include "engine/reward/gsm8k_rule.h"
#include "engine/reward/length_rule.h"
#include "engine/reward/math_dapo_rule.h"
#include "engine/reward/math_rule.h"

namespace sluice::engine {
namespace {

using nlohmann::json;

json Golden(const std::string& name) {
  std::ifstream in("tests/golden/reward/" + name);
  EXPECT_TRUE(in) << name;
  return json::parse(in);
}

std::optional<std::string> Nullable(const json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<std::string>();
}

TEST(AnswerTextTest, CountsCharactersFromTheEnd) {
  EXPECT_EQ(LastCharacters("abc", 5), "abc");
  EXPECT_EQ(LastCharacters("aébc", 3), "ébc");
  EXPECT_EQ(LastCharacters("aé", 1), "é");
  EXPECT_EQ(LastCharacters("", 3), "");
  EXPECT_EQ(LastCharacters("abc", 0), "");
}

TEST(AnswerTextTest, FindsTheLastBox) {
  EXPECT_EQ(LastBoxed("so \\boxed{1} and \\boxed{\\frac{1}{2}}."), "\\frac{1}{2}");
  EXPECT_EQ(LastBoxed("$\\boxed 7$ apples"), "7");
  EXPECT_EQ(LastBoxed("\\boxed {a{b}c} d"), "a{b}c");
  EXPECT_EQ(LastBoxed("\\fbox{3}"), "3");
  EXPECT_EQ(LastBoxed("\\boxed{1 and no end"), std::nullopt);
  EXPECT_EQ(LastBoxed("nothing"), std::nullopt);
  EXPECT_EQ(LastBoxed("\\boxed"), std::nullopt);
}

TEST(ExactNumberTest, ReadsNumbersWithoutRounding) {
  const auto number = [](int64_t n, int64_t d) { return ExactNumber{n, d}; };
  EXPECT_EQ(ParseExactNumber("0.5"), number(1, 2));
  EXPECT_EQ(ParseExactNumber("-.50"), number(-1, 2));
  EXPECT_EQ(ParseExactNumber("3."), number(3, 1));
  EXPECT_EQ(ParseExactNumber("007"), number(7, 1));
  EXPECT_EQ(ParseExactNumber("-0"), number(0, 1));
  EXPECT_EQ(ParseExactNumber("-\\frac{2}{-4}"), number(1, 2));
  EXPECT_EQ(ParseExactNumber("0.1"), number(1, 10));
  for (const char* text :
       {"", ".", "-", "1.2.3", "1e3", "\\frac{1}{0}", "\\frac{1}{", "\\frac{x}{2}", "1234567890123456789"}) {
    EXPECT_EQ(ParseExactNumber(text), std::nullopt) << text;
  }
}

TEST(Gsm8kRuleTest, FindsWhatTheReferenceFinds) {
  const json cases = Golden("gsm8k.json");
  ASSERT_GT(cases.size(), 100u);
  for (const json& c : cases) {
    const std::string text = c["text"];
    EXPECT_EQ(ExtractGsm8kAnswer(text, Gsm8kMethod::kStrict), Nullable(c["strict"])) << text;
    EXPECT_EQ(ExtractGsm8kAnswer(text, Gsm8kMethod::kFlexible), Nullable(c["flexible"])) << text;
  }
}

TEST(Gsm8kRuleTest, ScoresRightWrongAndMissing) {
  const auto strict = [](const char* text) { return ScoreGsm8k(text, "1234", Gsm8kMethod::kStrict, 1, 0.1); };
  EXPECT_EQ(strict("#### 1,234"), 1);
  EXPECT_EQ(strict("#### 1234."), 0.1);  // compared as text
  EXPECT_EQ(strict("It is 1234"), 0);
  EXPECT_EQ(ScoreGsm8k("It is 1234", "1234", Gsm8kMethod::kFlexible, 2, 0), 2);
  EXPECT_EQ(ScoreGsm8k("It is 1234.", "1234", Gsm8kMethod::kFlexible, 2, 0), 0);
}

TEST(Gsm8kRuleTest, NumericComparesValues) {
  const auto score = [](const char* text, const char* truth) {
    return ScoreGsm8k(text, truth, Gsm8kMethod::kNumeric, 1, 0);
  };
  EXPECT_EQ(score("3 + 4 = 7.", "7"), 1);
  EXPECT_EQ(score("It costs $1,234.50.", "1234.5"), 1);
  EXPECT_EQ(score("so -3, I think...", " -3 "), 1);
  EXPECT_EQ(score("It is 8", "7"), 0);
  EXPECT_EQ(score("It is seven", "7"), 0);
  EXPECT_EQ(score("It is 7", "seven"), 0);
}

TEST(MathRuleTest, TakesDifferentWritingsOfOneAnswerAsEqual) {
  const char* same[][2] = {{"\\frac12", "\\frac{1}{2}"},
                           {"\\dfrac{1}{2}", "1/2"},
                           {"0.5", "\\tfrac 1 2"},
                           {".5", "0.50"},
                           {"-\\frac{3}{4}", "-3/4"},
                           {"2.50", "2.5"},
                           {"\\left( 1 , 2 \\right)", "(1,2)"},
                           {"\\sqrt3", "\\sqrt{3}"},
                           {"2\\sqrt 3+\\frac1{10}", "2\\sqrt{3}+\\frac{1}{10}"},
                           {"\\sqrt{\\sqrt2}", "\\sqrt{\\sqrt{2}}"},
                           {"5\\text{ cm}", "5"},
                           {"12\\mbox{ cm}^2", "12"},
                           {"3 \\text{inches}", "3"},
                           {"\\text{Evelyn}", "Evelyn"},
                           {"x = 5", "5"},
                           {"50\\%", "50"},
                           {"90^\\circ", "90"},
                           {"90^{\\circ}", "90"},
                           {"\\$1,234.50", "1234.50"},
                           {"$7$.", "7"},
                           {"10{,}000", "10{,}000"},
                           {"x\\!+\\,1", "x+1"},
                           {"(-\\infty, 2)\\cup(3,\\infty)", "(-\\infty,2) \\cup (3,\\infty)"}};
  for (const auto& [a, b] : same) {
    EXPECT_TRUE(MathAnswersAgree(a, b)) << a << " -> " << NormalizeMathAnswer(a) << "; " << b << " -> "
                                        << NormalizeMathAnswer(b);
  }
}

TEST(MathRuleTest, KeepsDifferentAnswersApart) {
  const char* different[][2] = {{"1", "2"},
                                {"\\frac12", "\\frac21"},
                                {"(1,2)", "(2,1)"},
                                {"1,2", "12"},
                                {"x^2", "x^3"},
                                {"-1", "1"},
                                {"\\sqrt{3}", "3"},
                                {"0.3333", "1/3"},
                                {"A", "\\text{B}"},
                                {"x+y=5", "5"},
                                {"", "0"},
                                {"(1,000)", "(1000)"},
                                {"2\\pi", "2"},
                                {"\\leftarrow", "arrow"},
                                {"10\\frac12", "\\frac{101}{2}"}};
  for (const auto& [a, b] : different) {
    EXPECT_FALSE(MathAnswersAgree(a, b)) << a << " and " << b << " -> " << NormalizeMathAnswer(a);
  }
}

TEST(MathRuleTest, SurvivesUnfinishedMathematics) {
  for (const char* text : {"\\frac", "\\frac{", "\\frac1", "\\sqrt", "\\sqrt{", "\\text{", "\\text{ cm", "$", "=", "-",
                           "\\frac{1}{2", "{{{", "/"}) {
    NormalizeMathAnswer(text);
    EXPECT_FALSE(MathAnswersAgree(text, "1")) << text;
  }
}

TEST(MathRuleTest, ScoresTheLastBox) {
  EXPECT_EQ(ScoreMath("\\boxed{2} no, \\boxed{\\frac12}", "0.5"), 1);
  EXPECT_EQ(ScoreMath("\\boxed{2}", "3"), 0);
  EXPECT_EQ(ScoreMath("2", "2"), 0);
}

TEST(MathDapoRuleTest, FindsAndNormalizesAsTheReference) {
  const json cases = Golden("math_dapo.json");
  ASSERT_GT(cases.size(), 500u);
  for (const json& c : cases) {
    const std::string text = c["text"];
    EXPECT_EQ(ExtractMinervaAnswer(text), c["answer"].get<std::string>()) << text;
    EXPECT_EQ(NormalizeMinervaAnswer(c["answer"].get<std::string>()), c["normalized"].get<std::string>()) << text;
  }
}

TEST(MathDapoRuleTest, RightIsOneAndWrongIsMinusOne) {
  EXPECT_EQ(ScoreMathDapo("Answer: $\\frac12$", "\\frac{1}{2}", false).score(), 1);
  EXPECT_EQ(ScoreMathDapo("Answer: 3", "4", false).score(), -1);
  EXPECT_EQ(ScoreMathDapo("4", "4", false).score(), -1);
  EXPECT_EQ(ScoreMathDapo("\\boxed{4}", "4", true).score(), 1);
  EXPECT_EQ(ScoreMathDapo("\\boxed{4}" + std::string(100, ' '), "4", true).score(), -1);
  EXPECT_EQ(ScoreMathDapo("Answer: 4", "4", true).score(), -1);
}

TEST(LengthRuleTest, FollowsTheFormulas) {
  EXPECT_EQ(OverlongScore(80, 100, 20, 1), 0);
  EXPECT_FALSE(std::signbit(OverlongScore(10, 100, 20, 1)));
  EXPECT_DOUBLE_EQ(OverlongScore(90, 100, 20, 1), -0.5);
  EXPECT_DOUBLE_EQ(OverlongScore(100, 100, 20, 2), -2);
  EXPECT_DOUBLE_EQ(OverlongScore(110, 100, 20, 1), -1.5);
  EXPECT_EQ(TargetLengthScore(50, 50, 10, 1), 0);
  EXPECT_DOUBLE_EQ(TargetLengthScore(45, 50, 10, 1), -0.5);
  EXPECT_DOUBLE_EQ(TargetLengthScore(55, 50, 10, 2), -1);
  EXPECT_DOUBLE_EQ(TargetLengthScore(500, 50, 10, 0.5), -0.5);
}

}  // namespace
}  // namespace sluice::engine
