#include "engine/tokenizer/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "engine/tokenizer/char_class.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

utf8proc_option_t OptionsOf(UnicodeForm form) {
  int options = UTF8PROC_STABLE;
  const bool composed = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

// The form of a short segment. REQUIRES: valid UTF-8.
std::string FormOf(UnicodeForm form, std::string_view segment) {
  std::vector<utf8proc_int32_t> buffer(segment.size() * 4 + 32);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(segment.data());
  const auto size = static_cast<utf8proc_ssize_t>(segment.size());
  utf8proc_ssize_t count = utf8proc_decompose(bytes, size, buffer.data(), buffer.size(), OptionsOf(form));
  if (count > static_cast<utf8proc_ssize_t>(buffer.size())) {
    buffer.resize(count + 1);
    count = utf8proc_decompose(bytes, size, buffer.data(), buffer.size(), OptionsOf(form));
  }
  if (count < 0) return std::string(segment);
  count = utf8proc_normalize_utf32(buffer.data(), count, OptionsOf(form));
  std::string out;
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendUtf8(static_cast<uint32_t>(buffer[i]), &out);
  return out;
}

// Length of the longest common prefix that is whole characters.
size_t CommonPrefix(std::string_view a, std::string_view b) {
  size_t n = std::mismatch(a.begin(), a.begin() + std::min(a.size(), b.size()), b.begin()).first - a.begin();
  while (n > 0 && ((n < a.size() && (a[n] & 0xC0) == 0x80) || (n < b.size() && (b[n] & 0xC0) == 0x80))) --n;
  return n;
}

void AppendSegment(UnicodeForm form, std::string_view original, size_t begin, size_t end, AlignedText* out) {
  const std::string_view segment = original.substr(begin, end - begin);
  const std::string changed = FormOf(form, segment);
  const size_t same = CommonPrefix(segment, changed);
  out->Keep(begin, begin + same);
  // A segment whose end vanished cannot be: normal forms delete nothing.
  if (same < segment.size()) out->Put(std::string_view(changed).substr(same), begin + same, end);
}

}  // namespace

bool IsSurelyInForm(UnicodeForm form, std::string_view text) {
  const CharClassTable& classes = CharClassTable::Get();
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    if (form != UnicodeForm::kNfc) return false;
    const DecodedChar c = DecodeChar(text, at);
    if (!(classes[c.code_point] & kNfcStable)) return false;
    at += c.length;
  }
  return true;
}

void AppendInForm(UnicodeForm form, std::string_view original, AlignedText* out) {
  const CharClassTable& classes = CharClassTable::Get();
  // A segment runs from one boundary to the next; its form does not depend on its neighbours.
  size_t begin = 0;
  while (begin < original.size()) {
    const DecodedChar first = DecodeChar(original, begin);
    size_t end = begin + first.length;
    const bool opaque = (classes[first.code_point] & kNormOpaque) != 0;
    while (!opaque && end < original.size()) {
      const DecodedChar next = DecodeChar(original, end);
      if (classes[next.code_point] & kNormBoundary) break;
      end += next.length;
    }
    const bool alone = end == begin + first.length;
    if (opaque || (alone && (first.code_point < 0x80 ||
                             (form == UnicodeForm::kNfc && (classes[first.code_point] & kNfcStable))))) {
      out->Keep(begin, end);
    } else {
      AppendSegment(form, original, begin, end, out);
    }
    begin = end;
  }
}

}  // namespace sluice::engine
