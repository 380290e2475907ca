#include "engine/reward/math_rule.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/reward/answer_text.h"
#include "engine/reward/exact_number.h"

namespace sluice::engine {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool AllDigits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), IsDigit); }

// Replaces a command that is a word, so that \left goes and \leftarrow stays.
std::string ReplaceCommand(std::string_view text, std::string_view command, std::string_view to) {
  std::string result;
  size_t begin = 0;
  while (true) {
    const size_t at = text.find(command, begin);
    if (at == std::string_view::npos) break;
    const size_t end = at + command.size();
    const bool is_longer = end < text.size() && IsLetter(text[end]);
    result.append(text.substr(begin, at - begin)).append(is_longer ? command : to);
    begin = end;
  }
  return result.append(text.substr(begin));
}

// \text{ square cm} behind something else is a unit: with a space in front, as the data set writes units, or behind a
// plain number. \text around the whole answer, or inside it, is only a typeface.
std::string WithoutText(std::string text) {
  for (const std::string_view command : {"\\textrm", "\\textbf", "\\textit", "\\mbox", "\\mathrm", "\\mathbf"}) {
    text = ReplaceCommand(text, command, "\\text");
  }
  constexpr std::string_view kText = "\\text{";
  if (const size_t at = text.rfind(kText); at != std::string::npos && at > 0) {
    const size_t close = text.find('}', at);
    const std::string_view behind = close == std::string::npos ? "" : std::string_view(text).substr(close + 1);
    const bool is_last = behind.empty() || behind == "^2" || behind == "^3" || behind == "^{2}" || behind == "^{3}";
    const std::string_view before = StripSpace(std::string_view(text).substr(0, at));
    const bool is_number = ParseExactNumber(ReplaceAll(before, ",", "")).has_value();
    const bool has_space = text[at + kText.size()] == ' ' || text[at - 1] == ' ';
    if (close != std::string::npos && is_last && !before.empty() && (has_space || is_number))
      text = std::string(before);
  }
  for (size_t at = text.find(kText); at != std::string::npos; at = text.find(kText)) {
    const size_t close = text.find('}', at);
    if (close == std::string::npos) break;
    text = text.substr(0, at) + text.substr(at + kText.size(), close - at - kText.size()) + text.substr(close + 1);
  }
  return text;
}

// "x = 5" and "k=5" are 5: one equals sign with at most two characters before it.
std::string WithoutLeftSide(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || text.find('=', equals + 1) != std::string::npos) return text;
  if (StripSpace(std::string_view(text).substr(0, equals)).size() > 2) return text;
  return text.substr(equals + 1);
}

// Braces around the arguments of a command that stand without: one character each. REQUIRES: no white space.
std::string WithBraces(const std::string& text, std::string_view command, int arguments) {
  std::string result;
  size_t i = 0;
  while (i < text.size()) {
    if (std::string_view(text).substr(i, command.size()) != command) {
      result += text[i++];
      continue;
    }
    result += command;
    i += command.size();
    for (int argument = 0; argument < arguments && i < text.size(); ++argument) {
      if (text[i] == '{') {  // a group is copied with what is nested in it, which has its own turn later
        int depth = 0;
        const size_t open = i;
        do {
          depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
          ++i;
        } while (i < text.size() && depth > 0);
        result += '{' + WithBraces(text.substr(open + 1, i - open - 2), command, arguments) + '}';
      } else if (IsDigit(text[i]) || IsLetter(text[i])) {
        result.append({'{', text[i++], '}'});
      } else {
        break;  // a command, as in \sqrt\pi
      }
    }
  }
  return result;
}

// 3/4 and -3/4 as fractions, where they are the whole answer.
std::string WithSlashAsFraction(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return text;
  const bool negative = text[0] == '-';
  const std::string top = text.substr(negative, slash - negative);
  const std::string bottom = text.substr(slash + 1);
  if (!AllDigits(top) || !AllDigits(bottom)) return text;
  return std::string(negative ? "-" : "") + "\\frac{" + top + "}{" + bottom + "}";
}

// 1,234,567.8 without its commas; tuples and sets keep theirs.
std::string WithoutThousandsCommas(const std::string& text) {
  const size_t sign = !text.empty() && text[0] == '-';
  const size_t end = std::min(text.find('.'), text.size());
  const std::string whole = text.substr(sign, end - sign);
  if (whole.find(',') == std::string::npos) return text;
  if (end < text.size() && !AllDigits(text.substr(end + 1))) return text;
  for (size_t i = 0; i < whole.size(); ++i) {
    const bool comma_here = (whole.size() - i) % 4 == 0 && i > 0;
    if (comma_here ? whole[i] != ',' : !IsDigit(whole[i])) return text;
  }
  return ReplaceAll(text, ",", "");
}

// A zero before a decimal point that has no digit in front.
std::string WithLeadingZeros(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool bare =
        text[i] == '.' && (i == 0 || !IsDigit(text[i - 1])) && i + 1 < text.size() && IsDigit(text[i + 1]);
    if (bare) result += '0';
    result += text[i];
  }
  return result;
}

}  // namespace

std::string NormalizeMathAnswer(std::string_view answer) {
  std::string text(StripSpace(answer));
  if (text.size() >= 2 && text.front() == '$' && text.back() == '$') text = text.substr(1, text.size() - 2);
  constexpr std::pair<std::string_view, std::string_view> kPlain[] = {
      {"\n", " "}, {"\\\\", "\\"},    {"\\!", ""},     {"\\,", ""}, {"\\;", ""}, {"\\:", ""}, {"\\ ", " "},
      {"~", " "},  {"^{\\circ}", ""}, {"^\\circ", ""}, {"\\$", ""}, {"$", ""},   {"\\%", ""}, {"%", ""}};
  for (const auto& [from, to] : kPlain) text = ReplaceAll(text, from, to);
  constexpr std::pair<std::string_view, std::string_view> kCommands[] = {{"\\left", ""},        {"\\right", ""},
                                                                         {"\\tfrac", "\\frac"}, {"\\dfrac", "\\frac"},
                                                                         {"\\cfrac", "\\frac"}, {"\\quad", ""}};
  for (const auto& [from, to] : kCommands) text = ReplaceCommand(text, from, to);
  text = WithoutLeftSide(WithoutText(std::move(text)));
  std::erase_if(text, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
  if (text.ends_with('.')) text.pop_back();
  text = WithBraces(text, "\\sqrt", 1);
  text = WithBraces(text, "\\frac", 2);
  text = WithoutThousandsCommas(WithLeadingZeros(text));
  text = WithSlashAsFraction(text);
  return text == "0.5" ? "\\frac{1}{2}" : text;
}

bool MathAnswersAgree(std::string_view a, std::string_view b) {
  const std::string left = NormalizeMathAnswer(a);
  const std::string right = NormalizeMathAnswer(b);
  if (left == right) return true;
  const std::optional<ExactNumber> left_number = ParseExactNumber(left);
  return left_number.has_value() && left_number == ParseExactNumber(right);
}

double ScoreMath(std::string_view solution, std::string_view ground_truth) {
  const std::optional<std::string> answer = LastBoxed(solution);
  return answer.has_value() && MathAnswersAgree(*answer, ground_truth) ? 1 : 0;
}

}  // namespace sluice::engine
