#include "common/config/suggest.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

struct Decoded {
  uint32_t code_point = 0;
  size_t bytes = 0;  // 0: not well-formed
};

// Table 3-7 of the Unicode standard: no overlong forms, no surrogates, nothing above U+10FFFF.
Decoded DecodeAt(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : 0u; };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return {};
  uint32_t code_point = lead & (0xFF >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code_point < kLeast[bytes] || code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) return {};
  return {code_point, bytes};
}

std::vector<uint32_t> CodePoints(const std::string& text) {
  std::vector<uint32_t> points;
  for (size_t at = 0; at < text.size();) {
    const Decoded decoded = DecodeAt(text, at);
    points.push_back(decoded.bytes ? decoded.code_point : static_cast<uint8_t>(text[at]));
    at += std::max<size_t>(decoded.bytes, 1);
  }
  return points;
}

std::string Initials(const std::string& word) {
  std::string initials;
  for (size_t i = 0; i < word.size(); ++i) {
    if (i == 0 || word[i - 1] == '_') initials += word[i];
  }
  return initials;
}

}  // namespace

int EditDistance(const std::string& a, const std::string& b) {
  const std::vector<uint32_t> x = CodePoints(a), y = CodePoints(b);
  std::vector<std::vector<int>> cost(x.size() + 1, std::vector<int>(y.size() + 1));
  for (size_t i = 0; i <= x.size(); ++i) {
    for (size_t j = 0; j <= y.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = static_cast<int>(i + j);
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (x[i - 1] != y[j - 1])});
      if (i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[x.size()][y.size()];
}

std::optional<std::string> Nearest(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestKey = 64;
  if (word.size() > kLongestKey) return std::nullopt;
  std::optional<std::string> best;
  int best_distance = 0;
  for (const std::string& candidate : candidates) {
    const int distance = EditDistance(word, candidate);
    const size_t longer = std::max(word.size(), candidate.size());
    if (static_cast<size_t>(distance) * 3 > std::max<size_t>(longer, 3)) continue;
    if (!best || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (best) return best;
  const std::string initials = Initials(word);
  if (initials.size() < 2) return std::nullopt;
  const auto found = std::find(candidates.begin(), candidates.end(), initials);
  if (found == candidates.end()) return std::nullopt;
  return *found;
}

std::string CodePointNote(const std::string& word) {
  std::string letters;
  for (size_t at = 0; at < word.size();) {
    const Decoded decoded = DecodeAt(word, at);
    const size_t bytes = std::max<size_t>(decoded.bytes, 1);
    if (decoded.code_point >= 0x80) {
      absl::StrAppend(&letters, letters.empty() ? "" : ", ", word.substr(at, bytes), " is U+",
                      absl::AsciiStrToUpper(absl::StrCat(absl::Hex(decoded.code_point, absl::kZeroPad4))));
    }
    at += bytes;
  }
  return letters.empty() ? "" : absl::StrCat(" (letters outside ASCII: ", letters, ")");
}

size_t FirstBadUtf8(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = DecodeAt(text, at).bytes;
    if (bytes == 0) return at;
    at += bytes;
  }
  return std::string::npos;
}

}  // namespace sluice
