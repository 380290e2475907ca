// What the tokenizer makes of many texts, in a form that a script can read: the partner of
// tools/oracle/tokenizer_fuzz.py.
//
//   tokenizer_dump TOKENIZER_JSON [--special] < texts > results
//
// A text comes as its length (32 bits, little endian) and its bytes. Its result is, all numbers in 32 bits: the count
// of ids, the ids, the ranges (begin, end) of each, then three texts (length and bytes): Decode, Decode without special
// tokens, and what an IncrementalDecoder showed in all. The program ends at the end of its input.
#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace {

using sluice::engine::DecodeOptions;
using sluice::engine::Encoding;
using sluice::engine::IncrementalDecoder;
using sluice::engine::Tokenizer;

void PutNumber(int64_t value, std::string* out) {
  const auto number = static_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(number >> shift & 0xFF));
}

void PutText(const std::string& text, std::string* out) {
  PutNumber(static_cast<int64_t>(text.size()), out);
  out->append(text);
}

std::string Streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  IncrementalDecoder decoder(tokenizer);
  std::string shown;
  for (const int32_t id : ids) shown += decoder.Push(id);
  return shown + decoder.Flush();
}

// False at the end of the input.
bool ReadText(std::istream& in, std::string* text) {
  unsigned char length[4];
  if (!in.read(reinterpret_cast<char*>(length), sizeof length)) return false;
  text->resize(length[0] | length[1] << 8 | length[2] << 16 | static_cast<size_t>(length[3]) << 24);
  return static_cast<bool>(in.read(text->data(), static_cast<std::streamsize>(text->size())));
}

}  // namespace

int main(int argc, char** argv) {
  const bool special = argc == 3 && std::strcmp(argv[2], "--special") == 0;
  if (argc != 2 && !special) {
    std::cerr << "usage: tokenizer_dump TOKENIZER_JSON [--special] < texts > results\n";
    return 2;
  }
  const auto tokenizer = Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << "\n";
    return 2;
  }
  std::ios::sync_with_stdio(false);
  std::string text;
  while (ReadText(std::cin, &text)) {
    const Encoding encoding = (*tokenizer)->EncodeWithOffsets(text, {.add_special_tokens = special});
    if (encoding.ids != (*tokenizer)->Encode(text, {.add_special_tokens = special})) {
      std::cerr << "Encode and EncodeWithOffsets differ for: " << text << "\n";
      return 1;
    }
    std::string result;
    PutNumber(static_cast<int64_t>(encoding.ids.size()), &result);
    for (const int32_t id : encoding.ids) PutNumber(id, &result);
    for (const auto& range : encoding.ranges) {
      PutNumber(range.begin, &result);
      PutNumber(range.end, &result);
    }
    PutText((*tokenizer)->Decode(encoding.ids), &result);
    PutText((*tokenizer)->Decode(encoding.ids, DecodeOptions{.skip_special_tokens = true}), &result);
    PutText(Streamed(**tokenizer, encoding.ids), &result);
    std::cout << result;
  }
  return 0;
}
