#include "common/crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// Values of RFC 3720, appendix B.4, and the usual check value of the nine digits.
TEST(Crc32cTest, PublishedValues) {
  std::string rising(32, '\0'), falling(32, '\0');
  for (int i = 0; i < 32; ++i) {
    rising[i] = static_cast<char>(i);
    falling[i] = static_cast<char>(31 - i);
  }
  const std::vector<std::pair<std::string, uint32_t>> cases = {
      {"", 0},
      {"123456789", 0xE3069283},
      {std::string(32, '\0'), 0x8A9136AA},
      {std::string(32, '\xFF'), 0x62A8AB43},
      {rising, 0x46DD794E},
      {falling, 0x113FDB5C},
  };
  for (const auto& [text, want] : cases) {
    EXPECT_EQ(Crc32c(Bytes(text)), want);
    EXPECT_EQ(crc32c_internal::WithTables(Bytes(text), 0), want);
  }
}

TEST(Crc32cTest, BothWaysAgreeAndPiecesChain) {
  std::string text;
  uint32_t state = 7;
  for (int i = 0; i < 300; ++i) text.push_back(static_cast<char>((state = state * 1664525 + 1013904223) >> 24));
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::span<const std::byte> head = Bytes(text).first(cut), tail = Bytes(text).subspan(cut);
    EXPECT_EQ(Crc32c(tail, Crc32c(head)), Crc32c(Bytes(text))) << cut;
    EXPECT_EQ(crc32c_internal::WithTables(tail, 5), Crc32c(tail, 5)) << cut;
  }
}

}  // namespace
}  // namespace sluice
