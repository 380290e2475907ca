// Strings as Python sees them: sequences of code points, held as UTF-8. Bytes that are not UTF-8 count as one code
// point each and are passed through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::engine::jinja {

// Reads the code point at `*position` and moves behind it. REQUIRES: *position < text.size().
int32_t NextCodePoint(std::string_view text, size_t* position);

void AppendCodePoint(int32_t code_point, std::string* text);

bool IsAscii(std::string_view text);

size_t CodePointCount(std::string_view text);

// The start byte of each code point, and text.size() at the end.
std::vector<size_t> CodePointStarts(std::string_view text);

// str.isspace() of one character.
bool IsSpace(int32_t code_point);

// str.strip() and its halves: with `characters` null, white space; else any of these characters.
enum class StripSide { kLeft, kRight, kBoth };
std::string_view Strip(std::string_view text, StripSide side, const std::string* characters = nullptr);

// str.upper, lower, title and capitalize.
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Title(std::string_view text);
std::string Capitalize(std::string_view text);

// str.isalpha() and others of one character.
bool IsAlpha(int32_t code_point);
bool IsDecimal(int32_t code_point);
bool IsUpper(int32_t code_point);
bool IsLower(int32_t code_point);
bool IsPrintable(int32_t code_point);

}  // namespace sluice::engine::jinja
