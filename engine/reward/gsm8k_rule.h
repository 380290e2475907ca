// Answers of grade-school word problems (Cobbe et al. 2021): a number, written after "#### ". Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::engine {

enum class Gsm8kMethod {
  kStrict,    // the last number after "#### ", without commas; compared as text
  kFlexible,  // the last number, as it is written ("1,000." with comma and point); compared as text
  kNumeric,   // the last number that has a digit; compared by value, without commas and a point at its end
};

// From the last 300 characters of a response; nullopt where there is no number. A number is an optional minus sign and
// then digits, points and commas in any order, as verl's rule for this data set has it.
std::optional<std::string> ExtractGsm8kAnswer(std::string_view solution, Gsm8kMethod method);

// `score` for the right answer, `format_score` for another one, 0 for none.
double ScoreGsm8k(std::string_view solution, std::string_view ground_truth, Gsm8kMethod method, double score,
                  double format_score);

}  // namespace sluice::engine
