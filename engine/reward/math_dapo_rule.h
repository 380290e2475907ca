// Answers of the form "Answer: ..." (Lewkowycz et al. 2022, Minerva; Yu et al. 2025, DAPO): right is 1, wrong is -1.
// Pure.
#pragma once

#include <string>
#include <string_view>

namespace sluice::engine {

// An answer after the normalisation of Minerva (listing 1 of its appendix D.1): what follows the last "=", without
// articles, units and LaTeX dressing; \frac12 is frac{1}{2}; whole numbers without commas.
std::string NormalizeMinervaAnswer(std::string_view answer);

// What follows the last "Answer:" (any case) on its line, in the last 300 characters; "[INVALID]" where there is none.
std::string ExtractMinervaAnswer(std::string_view solution);

struct MathDapoScore {
  bool correct = false;
  double score() const { return correct ? 1 : -1; }
};

// `strict_box`: the content of the last \boxed in the last 100 characters, compared as it is; otherwise the Minerva
// answer, both normalised.
MathDapoScore ScoreMathDapo(std::string_view solution, std::string_view ground_truth, bool strict_box);

}  // namespace sluice::engine
