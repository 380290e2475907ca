// Answers of competition mathematics (Hendrycks et al. 2021, MATH): the content of the last \boxed, compared as
// mathematics is written. Pure.
#pragma once

#include <string>
#include <string_view>

namespace sluice::engine {

// One way to write an answer, after the normalisation that is published with the data set: no white space and spacing
// commands, no \left and \right, \tfrac and \dfrac are \frac, no degree, percent and dollar signs, no unit in \text at
// the end, no "x =" in front, \sqrt3 is \sqrt{3}, \frac12 and 1/2 are \frac{1}{2}, ".5" is "0.5". Beyond it: \text
// around the whole answer, commas between thousands, $...$ around the answer and a point at its end are left out.
std::string NormalizeMathAnswer(std::string_view answer);

// Whether both are one after normalisation, or are one number: 0.5, .50 and \frac{1}{2} are.
bool MathAnswersAgree(std::string_view a, std::string_view b);

// 1 where the last \boxed of the response agrees with the truth, else 0.
double ScoreMath(std::string_view solution, std::string_view ground_truth);

}  // namespace sluice::engine
