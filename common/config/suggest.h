// "Did you mean": the known word nearest to an unknown one.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sluice {

// Fewest insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`, over code points.
int EditDistance(const std::string& a, const std::string& b);

// The candidate nearest to `word`, where one is near enough to be meant: at most a third of the longer word apart, or a
// candidate made of the initials of `word` (learning_rate and lr). The first of several equally near ones.
std::optional<std::string> Nearest(const std::string& word, const std::vector<std::string>& candidates);

// " (letters outside ASCII: о is U+043E)": the letters outside ASCII, by code point: look-alikes of other scripts
// cannot be told apart on a screen. Empty where all of `word` is ASCII.
std::string CodePointNote(const std::string& word);

// Offset of the first byte that is not part of well-formed UTF-8; npos where there is none.
size_t FirstBadUtf8(const std::string& text);

}  // namespace sluice
