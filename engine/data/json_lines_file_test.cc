#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/data/row_file.h"
#include "engine/template/jinja/json.h"

namespace sluice::engine {
namespace {

using sluice::testing::StatusIs;
using sluice::testing::TempDir;
using ::testing::EndsWith;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<Row>> ReadAll(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<RowFile> file, OpenJsonLinesFile(path));
  std::vector<Row> rows;
  RETURN_IF_ERROR(file->Read(0, file->rows(), {}, &rows));
  return rows;
}

TEST(JsonLinesFileTest, ReadsTheGoldens) {
  std::ifstream in("tests/golden/data/json_lines_expected.json");
  const nlohmann::json expected = nlohmann::json::parse(in);
  ASSERT_EQ(expected.size(), 6u);
  for (const auto& [name, wanted] : expected.items()) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const std::vector<Row> rows, ReadAll("tests/golden/data/" + name));
    ASSERT_EQ(rows.size(), wanted["rows"].get<size_t>());
    for (size_t row = 0; row < rows.size(); ++row) {
      std::vector<std::string> contents;
      const jinja::Value messages = rows[row].Field("messages");
      for (const jinja::Value& message : messages.items()) {
        contents.push_back(message.Field("content").string());
      }
      EXPECT_EQ(contents, wanted["contents"][row].get<std::vector<std::string>>());
    }
  }
}

TEST(JsonLinesFileTest, KeepsKeyOrderAndNumbers) {
  TempDir temp;
  ASSERT_OK_AND_ASSIGN(const auto rows,
                       ReadAll(temp.Write("a.jsonl", R"({"z": 9007199254740993, "a": 1.0, "n": null})")));
  ASSERT_EQ(rows.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const std::string text, jinja::ToJson(rows[0]));
  EXPECT_EQ(text, R"({"z": 9007199254740993, "a": 1.0, "n": null})");
}

struct BadFile {
  const char* name;
  std::string contents;
  const char* message;  // after the path
};

TEST(JsonLinesFileTest, NamesLineByteAndExpectation) {
  const BadFile cases[] = {
      {"unquoted", "{\"a\": 1}\n\n{\"a\": oops}\n", ":3: expected one JSON object per line: not valid JSON at byte 6"},
      {"cut", "{\"a\": \"x", ":1: expected one JSON object per line: not valid JSON at byte "},
      {"array", "{}\n[1]\n", ":2: expected one JSON object per line, found a value of type list"},
      {"number", "5\n", ":1: expected one JSON object per line, found a value of type int"},
      {"two_in_a_line", "{} {}\n", ":1: expected one JSON object per line: not valid JSON at byte 3"},
      {"old_mac_line_ends", "{\"a\": 1}\r{\"a\": 2}\r",
       ":1: expected one JSON object per line: not valid JSON at byte "},
      {"raw_control_character", "{\"a\": \"x\ry\"}\n",
       ":1: expected one JSON object per line: not valid JSON at byte "},
      {"bad_utf8", "{\"a\": \"\xC3\x28\"}\n", ":1: not valid UTF-8 at byte 7"},
      {"surrogate_in_utf8", "{}\n{}\n{\"a\": \"\xED\xA0\x80\"}\n", ":3: not valid UTF-8 at byte 7"},
      {"gzip", "\x1F\x8B\x08", ": compressed with gzip; unpack it first"},
      {"utf16", std::string("\xFF\xFE{\0}\0", 6), ": UTF-16 text; UTF-8 is expected"},
      {"too_deep", "{\"a\": " + std::string(100000, '[') + std::string(100000, ']') + "}\n",
       ":1: expected one JSON object per line: not valid JSON at byte "},
  };
  TempDir temp;
  for (const BadFile& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string path = temp.Write(std::string(c.name) + ".jsonl", c.contents);
    EXPECT_THAT(ReadAll(path), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path + c.message)));
  }
}

TEST(JsonLinesFileTest, MissingFileAndFolder) {
  TempDir temp;
  EXPECT_THAT(ReadAll(temp.Join("none.jsonl")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.jsonl")));
  EXPECT_THAT(ReadAll(temp.path().string()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is a folder")));
}

TEST(JsonLinesFileTest, EmptyFilesHaveNoRows) {
  TempDir temp;
  for (const char* contents : {"", "\n", "\xEF\xBB\xBF", "\xEF\xBB\xBF\r\n \t\n"}) {
    ASSERT_OK_AND_ASSIGN(auto file, OpenJsonLinesFile(temp.Write("empty.jsonl", contents)));
    EXPECT_EQ(file->rows(), 0);
    ASSERT_OK_AND_ASSIGN(const auto columns, file->Columns());
    EXPECT_TRUE(columns.empty());
  }
}

// The file is scanned in blocks of 1 MiB: lines longer than one, and line ends at each place around a block's border.
TEST(JsonLinesFileTest, LinesAcrossBlocks) {
  TempDir temp;
  const int64_t block = 1 << 20;
  for (int64_t shift = -3; shift <= 3; ++shift) {
    const std::string first =
        R"({"a": ")" + std::string(block + shift - 9, 'x') + "\"}";  // its LF is byte block + shift
    ASSERT_EQ(static_cast<int64_t>(first.size()), block + shift);
    const std::string path =
        temp.Write("long.jsonl", first + "\n\n{\"a\": \"" + std::string(2 * block, 'y') + "\"}\n{\"a\": 3}");
    ASSERT_OK_AND_ASSIGN(auto file, OpenJsonLinesFile(path));
    ASSERT_EQ(file->rows(), 3) << shift;
    std::vector<Row> rows;
    ASSERT_OK(file->Read(1, 3, {}, &rows));
    EXPECT_EQ(static_cast<int64_t>(rows[0].Field("a").string().size()), 2 * block);
    EXPECT_EQ(rows[1].Field("a").int_value(), 3);
    EXPECT_THAT(file->Where(0), EndsWith("long.jsonl:1"));
    EXPECT_THAT(file->Where(2), EndsWith("long.jsonl:4"));
  }
}

TEST(JsonLinesFileTest, HashFollowsTheContents) {
  TempDir temp;
  ASSERT_OK_AND_ASSIGN(auto a, OpenJsonLinesFile(temp.Write("a.jsonl", "{}\n")));
  ASSERT_OK_AND_ASSIGN(auto same, OpenJsonLinesFile(temp.Write("b.jsonl", "{}\n")));
  ASSERT_OK_AND_ASSIGN(auto other, OpenJsonLinesFile(temp.Write("c.jsonl", "{}\n\n")));
  EXPECT_EQ(a->content_hash(), same->content_hash());
  EXPECT_NE(a->content_hash(), other->content_hash());
}

TEST(JsonLinesFileTest, FileThatShrinksIsAnError) {
  TempDir temp;
  const std::string path = temp.Write("a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
  ASSERT_OK_AND_ASSIGN(auto file, OpenJsonLinesFile(path));
  temp.Write("a.jsonl", "{}");
  std::vector<Row> rows;
  EXPECT_THAT(file->Read(0, 2, {}, &rows), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("a.jsonl: became shorter")));
}

}  // namespace
}  // namespace sluice::engine
