#include "engine/reward/math_dapo_rule.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/reward/answer_text.h"

namespace sluice::engine {
namespace {

constexpr size_t kTailCharacters = 300;
constexpr size_t kBoxCharacters = 100;

// The published lists, in their order: an earlier replacement makes what a later one looks for.
constexpr std::pair<std::string_view, std::string_view> kSubstitutions[] = {
    {"an ", ""}, {"a ", ""},       {".$", "$"},           {"\\$", ""},          {"\\ ", ""},
    {" ", ""},   {"mbox", "text"}, {",\\text{and}", ","}, {"\\text{and}", ","}, {"\\text{m}", "\\text{}"}};
constexpr std::string_view kRemoved[] = {"square",     "ways",       "integers",  "dollars",      "mph",
                                         "inches",     "hours",      "km",        "units",        "\\ldots",
                                         "sue",        "points",     "feet",      "minutes",      "digits",
                                         "cents",      "degrees",    "cm",        "gm",           "pounds",
                                         "meters",     "meals",      "edges",     "students",     "childrentickets",
                                         "multiples",  "\\text{s}",  "\\text{.}", "\\text{\ns}",  "\\text{}^2",
                                         "\\text{}^3", "\\text{\n}", "\\text{}",  "\\mathrm{th}", "^\\circ",
                                         "^{\\circ}",  "\\;",        ",\\!",      "{,}",          "\"",
                                         "\\dots"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// What is between the first pair of dollar signs in a line, or the text itself.
std::string BetweenDollars(const std::string& text) {
  const size_t open = text.find('$');
  if (open == std::string::npos) return text;
  const size_t close = text.find('$', open + 1);
  if (close == std::string::npos) return text;
  return text.substr(open + 1, close - open - 1);
}

// `command` with the text in its braces, replaced by that text, everywhere. The braces close at the next `}`, or where
// `greedy` at the last one.
std::string Unwrapped(std::string text, std::string_view command, bool greedy) {
  const std::string opening = std::string(command) + "{";
  size_t at = text.find(opening);
  while (at != std::string::npos) {
    const size_t begin = at + opening.size();
    const size_t close = greedy ? text.rfind('}') : text.find('}', begin);
    if (close == std::string::npos || close < begin) break;
    const std::string inside = text.substr(begin, close - begin);
    text.replace(at, close + 1 - at, inside);
    at = text.find(opening, at + inside.size());
  }
  return text;
}

// Braces around single characters after `name`: frac and sqrt where no `{` follows.
std::string WithBraces(const std::string& text, std::string_view name, int arguments) {
  std::string result;
  size_t i = 0;
  while (i < text.size()) {
    const size_t next = i + name.size();
    const bool is_short =
        std::string_view(text).substr(i, name.size()) == name && next + arguments <= text.size() && text[next] != '{';
    if (!is_short) {
      result += text[i++];
      continue;
    }
    result += name;
    for (int argument = 0; argument < arguments; ++argument) result.append({'{', text[next + argument], '}'});
    i = next + arguments;
  }
  return result;
}

}  // namespace

std::string NormalizeMinervaAnswer(std::string_view answer) {
  std::string text(answer.substr(answer.rfind('=') + 1));  // npos + 1 is 0
  for (const auto& [from, to] : kSubstitutions) text = ReplaceAll(text, from, to);
  for (const std::string_view removed : kRemoved) text = ReplaceAll(text, removed, "");
  text = BetweenDollars(text);
  text = Unwrapped(std::move(text), "\\text", /*greedy=*/false);
  text = Unwrapped(std::move(text), "\\textbf", /*greedy=*/false);
  text = Unwrapped(std::move(text), "\\overline", /*greedy=*/false);
  text = Unwrapped(std::move(text), "\\boxed", /*greedy=*/true);
  text = WithBraces(text, "frac", 2);
  text = WithBraces(text, "sqrt", 1);
  text = ReplaceAll(text, "$", "");
  const std::string without_commas = ReplaceAll(text, ",", "");
  if (!without_commas.empty() && std::all_of(without_commas.begin(), without_commas.end(), IsDigit)) {
    text = without_commas;
  }
  return std::string(StripSpace(text));
}

std::string ExtractMinervaAnswer(std::string_view solution) {
  const std::string_view tail = LastCharacters(solution, kTailCharacters);
  std::string lower(tail);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  constexpr std::string_view kWord = "answer";
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  std::string found = "[INVALID]";
  size_t at = lower.find(kWord);
  while (at != std::string::npos) {
    size_t next = at + kWord.size();
    const size_t colon = lower.find_first_not_of(kSpace, next);
    if (colon != std::string::npos && lower[colon] == ':') {
      size_t begin = lower.find_first_not_of(kSpace, colon + 1);
      if (begin == std::string::npos) {  // white space up to the end: its last piece on a line is the answer
        begin = lower.find_last_not_of('\n');
        if (begin != std::string::npos && begin <= colon) begin = std::string::npos;
      }
      if (begin != std::string::npos) {
        const size_t end = std::min(tail.find('\n', begin), tail.size());
        found = std::string(tail.substr(begin, end - begin));
        next = end;  // matches do not overlap: a second "Answer:" on this line belongs to the first one's text
      }
    }
    at = lower.find(kWord, next);
  }
  return found;
}

MathDapoScore ScoreMathDapo(std::string_view solution, std::string_view ground_truth, bool strict_box) {
  if (strict_box) {
    const std::optional<std::string> answer = LastBoxed(LastCharacters(solution, kBoxCharacters));
    return {answer.has_value() && *answer == ground_truth};
  }
  return {NormalizeMinervaAnswer(ExtractMinervaAnswer(solution)) == NormalizeMinervaAnswer(ground_truth)};
}

}  // namespace sluice::engine
