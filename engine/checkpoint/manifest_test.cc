#include "engine/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

Manifest Example() {
  return Manifest{20,
                  2,
                  {{"weights.safetensors", 123, 0xDEADBEEF}, {"rank_00000.json", 7, 1}},
                  R"({"lr":1e-05,"model":"q\u00fcwen"})"};
}

TEST(ManifestTest, RoundTrip) {
  ASSERT_OK_AND_ASSIGN(const std::string text, SerializeManifest(Example()));
  ASSERT_OK_AND_ASSIGN(const Manifest read, ParseManifest(text));
  EXPECT_EQ(read.files, Example().files);
  EXPECT_EQ(read.step, 20);
  EXPECT_EQ(read.world_size, 2);
  EXPECT_EQ(read.metadata_json, "{\"lr\":1e-05,\"model\":\"q\xC3\xBCwen\"}");
}

// No changed byte goes unnoticed, but for white space between the parts.
TEST(ManifestTest, EveryChangedByteIsFound) {
  ASSERT_OK_AND_ASSIGN(const std::string text, SerializeManifest(Example()));
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' || text[i] == '\n') continue;
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(ParseManifest(damaged).ok()) << i << ": " << damaged;
  }
  for (size_t length = 0; length + 1 < text.size(); ++length) EXPECT_FALSE(ParseManifest(text.substr(0, length)).ok());
}

TEST(ManifestTest, NamesTheProblem) {
  ASSERT_OK_AND_ASSIGN(const std::string text, SerializeManifest(Example()));
  EXPECT_THAT(ParseManifest(absl::StrReplaceAll(text, {{"\"step\": 20", "\"step\": 21"}})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("was changed after it was written")));
  EXPECT_THAT(
      ParseManifest(absl::StrReplaceAll(text, {{"\"format_version\": 1", "\"format_version\": 2"}})),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("format version 2, this program reads version 1")));
  EXPECT_THAT(ParseManifest("{}"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not the manifest of a checkpoint")));
  EXPECT_THAT(ParseManifest(""), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("manifest.json: not JSON")));
}

TEST(ManifestTest, RefusesToWriteWhatItCouldNotRead) {
  const auto with = [](auto change) {
    Manifest manifest = Example();
    change(manifest);
    return SerializeManifest(manifest);
  };
  EXPECT_FALSE(with([](Manifest& m) { m.step = -1; }).ok());
  EXPECT_FALSE(with([](Manifest& m) { m.world_size = 0; }).ok());
  EXPECT_FALSE(with([](Manifest& m) { m.files[0].name = "../x"; }).ok());
  EXPECT_FALSE(with([](Manifest& m) { m.files[0].name = "manifest.json"; }).ok());
  EXPECT_THAT(with([](Manifest& m) { m.files[0].name = "rank_00000.json"; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
  EXPECT_FALSE(with([](Manifest& m) { m.metadata_json = "[]"; }).ok());
}

TEST(ManifestTest, FileEntriesTravel) {
  ASSERT_OK_AND_ASSIGN(const std::vector<FileEntry> read, ParseFileEntries(SerializeFileEntries(Example().files)));
  EXPECT_EQ(read, Example().files);
  for (const char* text :
       {"", "{}", "[1]", "[{\"name\":\"a\"}]", "[{\"name\":\"a\",\"bytes\":-1,\"crc32c\":\"1\"}]",
        "[{\"name\":\"/a\",\"bytes\":1,\"crc32c\":\"1\"}]", "[{\"name\":\"a\",\"bytes\":1,\"crc32c\":\"x\"}]"}) {
    EXPECT_FALSE(ParseFileEntries(text).ok()) << text;
  }
}

}  // namespace
}  // namespace sluice::engine
