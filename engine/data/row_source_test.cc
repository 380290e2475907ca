#include "engine/data/row_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace sluice::engine {
namespace {

using sluice::testing::StatusIs;
using sluice::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::vector<int64_t> Numbers(const std::vector<Row>& rows) {
  std::vector<int64_t> numbers;
  for (const Row& row : rows) numbers.push_back(row.Field("n").int_value());
  return numbers;
}

class RowSourceTest : public ::testing::Test {
 protected:
  TempDir temp_;
};

TEST_F(RowSourceTest, FilesInTheOrderGivenGlobsInByteOrder) {
  temp_.Write("b.jsonl", "{\"n\": 1}\n{\"n\": 2}");
  temp_.Write("part-10.jsonl", "{\"n\": 10}\n");
  temp_.Write("part-9.jsonl", "{\"n\": 9}\n");
  temp_.Write("part-B.jsonl", "{\"n\": 66}\n");
  temp_.Write("part-a.jsonl", "{\"n\": 97}\n");
  temp_.Write("empty.jsonl", "\n");
  ASSERT_OK_AND_ASSIGN(auto source,
                       RowSource::Open({temp_.Join("part-*.jsonl"), temp_.Join("empty.jsonl"), temp_.Join("b.jsonl")}));
  ASSERT_EQ(source->rows(), 6);
  ASSERT_OK_AND_ASSIGN(const auto all, source->Read(0, 6));
  EXPECT_THAT(Numbers(all), ElementsAre(10, 9, 66, 97, 1, 2));
  ASSERT_OK_AND_ASSIGN(const auto part, source->Read(3, 5));
  EXPECT_THAT(Numbers(part), ElementsAre(97, 1));
  EXPECT_THAT(source->Where(5), EndsWith("b.jsonl:2"));
}

TEST_F(RowSourceTest, ANameWithGlobCharactersIsItself) {
  temp_.Write("a[1].jsonl", "{\"n\": 1}\n");
  temp_.Write("a1.jsonl", "{\"n\": 2}\n");
  ASSERT_OK_AND_ASSIGN(auto source, RowSource::Open({temp_.Join("a[1].jsonl")}));
  ASSERT_OK_AND_ASSIGN(const auto rows, source->Read(0, source->rows()));
  EXPECT_THAT(Numbers(rows), ElementsAre(1));
}

TEST_F(RowSourceTest, MixesKindsOfFiles) {
  temp_.Write("a.jsonl", R"({"messages": [{"role": "user", "content": "Hi"}]})");
  ASSERT_OK_AND_ASSIGN(auto source,
                       RowSource::Open({temp_.Join("a.jsonl"), "tests/golden/data/parquet/part-?.parquet"}));
  ASSERT_EQ(source->rows(), 4);
  ASSERT_OK_AND_ASSIGN(const auto rows, source->Read(0, 4, {"messages"}));
  for (const Row& row : rows) EXPECT_EQ(row.Field("messages").items()[0].Field("role").string(), "user");
  // The second part's type has no tool calls at all, the first's has them null: both read as absent.
  EXPECT_TRUE(rows[1].Field("messages").items()[0].Field("tool_calls").is_undefined());
  EXPECT_TRUE(rows[3].Field("messages").items()[0].Field("tool_calls").is_undefined());
  EXPECT_EQ(source->Where(3), "tests/golden/data/parquet/part-1.parquet: row 0");
}

TEST_F(RowSourceTest, MaxRowsTakesTheFirst) {
  temp_.Write("a.jsonl", "{\"n\": 1}\n{\"n\": 2}\n{\"n\": 3}\n");
  ASSERT_OK_AND_ASSIGN(auto two, RowSource::Open({temp_.Join("a.jsonl")}, 2));
  EXPECT_EQ(two->rows(), 2);
  ASSERT_OK_AND_ASSIGN(auto many, RowSource::Open({temp_.Join("a.jsonl")}, 99));
  EXPECT_EQ(many->rows(), 3);
  EXPECT_NE(two->ContentHash(), many->ContentHash());
}

TEST_F(RowSourceTest, HashIsOfContentsInOrder) {
  temp_.Write("a.jsonl", "{\"n\": 1}\n");
  temp_.Write("b.jsonl", "{\"n\": 2}\n");
  temp_.Write("copy/a.jsonl", "{\"n\": 1}\n");
  const auto hash = [&](const std::vector<std::string>& names) {
    std::vector<std::string> paths;
    for (const auto& name : names) paths.push_back(temp_.Join(name));
    return RowSource::Open(paths).value()->ContentHash();
  };
  EXPECT_EQ(hash({"a.jsonl", "b.jsonl"}), hash({"copy/a.jsonl", "b.jsonl"}));
  EXPECT_NE(hash({"a.jsonl", "b.jsonl"}), hash({"b.jsonl", "a.jsonl"}));
}

TEST_F(RowSourceTest, ErrorsNameTheFile) {
  const std::string text = temp_.Write("notes.txt", "hello");
  EXPECT_THAT(RowSource::Open({text}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("notes.txt: unknown kind of file")));
  EXPECT_THAT(RowSource::Open({temp_.Join("x-*.jsonl")}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("x-*.jsonl: matches no file")));
  EXPECT_THAT(RowSource::Open({temp_.Join("x.jsonl")}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("x.jsonl: no such file")));
  const std::string empty = temp_.Write("empty.jsonl", "");
  EXPECT_THAT(RowSource::Open({empty, "tests/golden/data/parquet/no_rows.parquet"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("empty.jsonl"), HasSubstr("no_rows.parquet: no rows"))));
}

}  // namespace
}  // namespace sluice::engine
