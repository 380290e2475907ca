// Text on its way through normalisation and splitting, with the place in the user's text that each byte came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::engine {

// Bytes [begin, end) of the user's text.
struct SourceRange {
  uint32_t begin;
  uint32_t end;
};

// A part of an AlignedText. Valid as long as the text it views.
struct Piece {
  std::string_view text;
  const SourceRange*
      source;  // one per byte of text: the range of the whole character; nullptr when nobody asked for offsets
  bool at_source_start;  // the piece begins where the user's text begins

  Piece Sub(size_t begin, size_t end) const {
    const bool at_start = source != nullptr && begin < end ? source[begin].begin == 0 : at_source_start && begin == 0;
    return {text.substr(begin, end - begin), source == nullptr ? nullptr : source + begin, at_start};
  }
};

// Builds a changed copy of a piece. When the piece has no source ranges, neither has the copy.
class AlignedText {
 public:
  explicit AlignedText(const Piece& original) : original_(original), tracked_(original.source != nullptr) {
    text_.reserve(original.text.size() + 16);
    if (tracked_) source_.reserve(original.text.size() + 16);
  }

  // Appends bytes [begin, end) of the original as they are.
  void Keep(size_t begin, size_t end) {
    text_.append(original_.text.substr(begin, end - begin));
    if (tracked_) source_.insert(source_.end(), original_.source + begin, original_.source + end);
  }

  // Appends `bytes` in place of bytes [begin, end) of the original: each gets the source range of the whole of them.
  // REQUIRES: begin < end.
  void Put(std::string_view bytes, size_t begin, size_t end) {
    text_.append(bytes);
    if (tracked_) {
      source_.insert(source_.end(), bytes.size(), {original_.source[begin].begin, original_.source[end - 1].end});
    }
  }

  // The copy so far. Valid until the next change.
  Piece piece() const {
    const bool at_start = tracked_ && !source_.empty() ? source_[0].begin == 0 : original_.at_source_start;
    return {text_, tracked_ ? source_.data() : nullptr, at_start};
  }

 private:
  Piece original_;
  bool tracked_;
  std::string text_;
  std::vector<SourceRange> source_;
};

}  // namespace sluice::engine
