#include "engine/reward/gsm8k_rule.h"

#include <vector>

#include "engine/reward/answer_text.h"
#include "engine/reward/exact_number.h"

namespace sluice::engine {
namespace {

constexpr size_t kTailCharacters = 300;
constexpr std::string_view kMark = "#### ";
constexpr std::string_view kNumberCharacters = "0123456789.,";

// End of the number that begins at `at`; `at` itself where none begins there.
size_t NumberEnd(std::string_view text, size_t at) {
  size_t end = at;
  if (end < text.size() && text[end] == '-') ++end;
  const size_t digits = end;
  while (end < text.size() && kNumberCharacters.find(text[end]) != std::string_view::npos) ++end;
  return end == digits ? at : end;
}

// All numbers with `mark` before them, left to right, without overlap.
std::vector<std::string> Numbers(std::string_view text, std::string_view mark) {
  std::vector<std::string> numbers;
  size_t at = 0;
  while (at < text.size()) {
    if (text.substr(at, mark.size()) == mark) {
      const size_t begin = at + mark.size();
      const size_t end = NumberEnd(text, begin);
      if (end > begin) {
        numbers.emplace_back(text.substr(begin, end - begin));
        at = end;
        continue;
      }
    }
    ++at;
  }
  return numbers;
}

// A number with a digit, without commas and without points at its end.
std::string PlainNumber(std::string_view number) {
  std::string plain = ReplaceAll(number, ",", "");
  while (!plain.empty() && plain.back() == '.') plain.pop_back();
  return plain;
}

}  // namespace

std::optional<std::string> ExtractGsm8kAnswer(std::string_view solution, Gsm8kMethod method) {
  const std::string_view tail = LastCharacters(solution, kTailCharacters);
  const std::vector<std::string> numbers = Numbers(tail, method == Gsm8kMethod::kStrict ? kMark : "");
  if (numbers.empty()) return std::nullopt;
  switch (method) {
    case Gsm8kMethod::kStrict:
      return ReplaceAll(numbers.back(), ",", "");
    case Gsm8kMethod::kFlexible:
      for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
        if (*number != ".") return *number;
      }
      return numbers.front();  // points only: an answer, though no right one
    case Gsm8kMethod::kNumeric:
      for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
        if (number->find_first_of("0123456789") != std::string::npos) return PlainNumber(*number);
      }
      return std::nullopt;
  }
  return std::nullopt;
}

double ScoreGsm8k(std::string_view solution, std::string_view ground_truth, Gsm8kMethod method, double score,
                  double format_score) {
  const std::optional<std::string> answer = ExtractGsm8kAnswer(solution, method);
  if (!answer.has_value()) return 0;
  if (*answer == ground_truth) return score;
  if (method == Gsm8kMethod::kNumeric) {
    const std::optional<ExactNumber> given = ParseExactNumber(*answer);
    const std::optional<ExactNumber> truth = ParseExactNumber(PlainNumber(StripSpace(ground_truth)));
    if (given.has_value() && given == truth) return score;
  }
  return format_score;
}

}  // namespace sluice::engine
