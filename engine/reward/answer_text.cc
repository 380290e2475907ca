#include "engine/reward/answer_text.h"

namespace sluice::engine {
namespace {

constexpr std::string_view kSpace = " \t\n\r\f\v";

// The content of the braces that open at text[open]; nullopt where they do not close.
std::optional<std::string> Braced(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return std::string(text.substr(open + 1, i - open - 1));
  }
  return std::nullopt;
}

}  // namespace

std::string_view LastCharacters(std::string_view text, size_t count) {
  size_t begin = text.size();
  while (begin > 0 && count > 0) {
    --begin;
    const bool continues = (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80;
    if (!continues) --count;
  }
  return text.substr(begin);
}

std::optional<std::string> LastBoxed(std::string_view text) {
  for (const std::string_view command : {std::string_view("\\boxed"), std::string_view("\\fbox")}) {
    const size_t at = text.rfind(command);
    if (at == std::string_view::npos) continue;
    size_t next = at + command.size();
    if (next < text.size() && text[next] == '{') return Braced(text, next);
    if (next < text.size() && text[next] == ' ') {
      const size_t brace = text.find_first_not_of(' ', next);
      if (brace != std::string_view::npos && text[brace] == '{') return Braced(text, brace);
      const std::string_view rest = text.substr(next + 1);
      return std::string(StripSpace(rest.substr(0, rest.find_first_of("$\n"))));
    }
    return std::nullopt;
  }
  return std::nullopt;
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  size_t begin = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, begin)) {
    result.append(text.substr(begin, at - begin)).append(to);
    begin = at + from.size();
  }
  result.append(text.substr(begin));
  return result;
}

std::string_view StripSpace(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace sluice::engine
