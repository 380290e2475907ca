#include "engine/template/jinja/string_search.h"

#include <algorithm>

#include "common/status_macros.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

bool IsLineEnd(int32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::vector<std::string> SplitAt(std::string_view text, std::string_view separator, int64_t maximum, bool from_right) {
  std::vector<std::string> pieces;
  while (maximum < 0 || static_cast<int64_t>(pieces.size()) < maximum) {
    const size_t found = from_right ? text.rfind(separator) : text.find(separator);
    if (found == std::string_view::npos) break;
    if (from_right) {
      pieces.emplace_back(text.substr(found + separator.size()));
      text = text.substr(0, found);
    } else {
      pieces.emplace_back(text.substr(0, found));
      text.remove_prefix(found + separator.size());
    }
  }
  pieces.emplace_back(text);
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string> SplitAtSpace(std::string_view text, int64_t maximum, bool from_right) {
  std::vector<std::pair<size_t, size_t>> words;  // byte ranges
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const bool is_space = IsSpace(NextCodePoint(text, &i));
    if (!is_space && !in_word) words.emplace_back(begin, i);
    if (!is_space) words.back().second = i;
    in_word = !is_space;
  }
  const bool is_limited = maximum >= 0 && static_cast<int64_t>(words.size()) > maximum;
  if (is_limited) {  // the unsplit rest keeps the white space on its far side
    const auto kept = static_cast<size_t>(maximum);
    if (from_right) {
      const std::pair<size_t, size_t> rest(0, words[words.size() - kept - 1].second);
      words.erase(words.begin(), words.end() - static_cast<std::ptrdiff_t>(kept));
      words.insert(words.begin(), rest);
    } else {
      words[kept].second = text.size();
      words.resize(kept + 1);
    }
  }
  std::vector<std::string> pieces;
  for (const auto& [begin, end] : words) pieces.emplace_back(text.substr(begin, end - begin));
  return pieces;
}

std::vector<std::string> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t line_begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t end = i;
    const int32_t c = NextCodePoint(text, &i);
    if (!IsLineEnd(c)) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.emplace_back(text.substr(line_begin, (keep_ends ? i : end) - line_begin));
    line_begin = i;
  }
  if (line_begin < text.size()) lines.emplace_back(text.substr(line_begin));
  return lines;
}

absl::StatusOr<std::string> ReplaceText(const Runtime& runtime, std::string_view text, std::string_view from,
                                        std::string_view to, int64_t count) {
  std::string out;
  size_t i = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    RETURN_IF_ERROR(runtime.CheckBytes(out.size()));
    if (from.empty()) {
      out.append(to);
      if (i == text.size()) return out;
      const size_t begin = i;
      NextCodePoint(text, &i);
      out.append(text.substr(begin, i - begin));
      continue;
    }
    const size_t found = text.find(from, i);
    if (found == std::string_view::npos) break;
    out.append(text.substr(i, found - i));
    out.append(to);
    i = found + from.size();
  }
  out.append(text.substr(i));
  RETURN_IF_ERROR(runtime.CheckBytes(out.size()));
  return out;
}

absl::StatusOr<std::string> Pad(const Runtime& runtime, std::string_view text, int64_t width, std::string_view fill,
                                char side) {
  const int64_t missing = width - static_cast<int64_t>(CodePointCount(text));
  if (missing <= 0) return std::string(text);
  RETURN_IF_ERROR(runtime.CheckBytes(static_cast<size_t>(missing)));
  int64_t left = missing / 2;
  if (side == '<') left = 0;
  if (side == '>') left = missing;
  if (side == 'c') left += missing & width & 1;
  std::string out;
  for (int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(text);
  for (int64_t i = left; i < missing; ++i) out.append(fill);
  return out;
}

}  // namespace sluice::engine::jinja
