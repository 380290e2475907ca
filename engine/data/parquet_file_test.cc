#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char kFolder[] = "tests/golden/data/parquet/";

absl::StatusOr<std::vector<std::string>> ReadAsJson(const RowFile& file, int64_t begin, int64_t end,
                                                    const std::vector<std::string>& columns = {}) {
  std::vector<Row> rows;
  RETURN_IF_ERROR(file.Read(begin, end, columns, &rows));
  std::vector<std::string> texts;
  for (const Row& row : rows) {
    ASSIGN_OR_RETURN(std::string text, jinja::ToJson(row));
    texts.push_back(std::move(text));
  }
  return texts;
}

TEST(ParquetFileTest, ReadsTheGoldens) {
  std::ifstream in(std::string(kFolder) + "rows.json");
  const nlohmann::json expected = nlohmann::json::parse(in);
  ASSERT_EQ(expected.size(), 12u);
  for (const auto& [name, wanted] : expected.items()) {
    SCOPED_TRACE(name);
    if (wanted.is_string()) continue;
    ASSERT_OK_AND_ASSIGN(auto file, OpenParquetFile(kFolder + name));
    ASSERT_EQ(file->rows(), static_cast<int64_t>(wanted.size()));
    ASSERT_OK_AND_ASSIGN(const auto rows, ReadAsJson(*file, 0, file->rows()));
    EXPECT_EQ(rows, wanted.get<std::vector<std::string>>());
  }
}

// The file has row groups of 2, 2, 2 and 1 rows.
TEST(ParquetFileTest, AnyRangeAndAnyColumns) {
  ASSERT_OK_AND_ASSIGN(auto file, OpenParquetFile(std::string(kFolder) + "large_types.parquet"));
  ASSERT_OK_AND_ASSIGN(const auto all, ReadAsJson(*file, 0, 7, {"source"}));
  EXPECT_THAT(all, ElementsAre(R"({"source": "x"})", R"({"source": "y"})", R"({"source": "x"})", R"({"source": null})",
                               R"({"source": "x"})", R"({"source": "y"})", R"({"source": "z"})"));
  for (int64_t begin = 0; begin <= 7; ++begin) {
    for (int64_t end = begin; end <= 7; ++end) {
      ASSERT_OK_AND_ASSIGN(const auto part, ReadAsJson(*file, begin, end, {"source"}));
      EXPECT_EQ(part, std::vector<std::string>(all.begin() + begin, all.begin() + end));
    }
  }
  // Another choice of columns must not get the kept row group of the former.
  ASSERT_OK_AND_ASSIGN(const auto other, ReadAsJson(*file, 6, 7, {"messages", "absent"}));
  EXPECT_THAT(other, ElementsAre(HasSubstr("a6")));
}

TEST(ParquetFileTest, NamesColumnsAndPlaces) {
  ASSERT_OK_AND_ASSIGN(auto file, OpenParquetFile(std::string(kFolder) + "missing_completion.parquet"));
  ASSERT_OK_AND_ASSIGN(const auto columns, file->Columns());
  EXPECT_THAT(columns, ElementsAre("prompt", "completion"));
  EXPECT_EQ(file->Where(1), std::string(kFolder) + "missing_completion.parquet: row 1");
}

TEST(ParquetFileTest, UnusableTypeMattersOnlyWhereItIsRead) {
  ASSERT_OK_AND_ASSIGN(auto file, OpenParquetFile(std::string(kFolder) + "timestamp.parquet"));
  EXPECT_OK(ReadAsJson(*file, 0, 1, {"text"}));
  EXPECT_THAT(ReadAsJson(*file, 0, 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("timestamp.parquet: row 0: column \"when\": has type timestamp[us]")));
}

TEST(ParquetFileTest, DamagedFilesAreErrors) {
  std::ifstream in(std::string(kFolder) + "struct_with_nulls.parquet", std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  TempDir temp;
  EXPECT_THAT(OpenParquetFile(temp.Join("none.parquet")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.parquet")));
  for (const std::string& bad : {std::string(), std::string("PAR1"), good.substr(0, good.size() / 2),
                                 good.substr(0, good.size() - 8) + std::string(4, '\x7F') + "PAR1"}) {
    EXPECT_THAT(OpenParquetFile(temp.Write("bad.parquet", bad)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bad.parquet: not a readable Parquet file")));
  }
  // The footer alone says where the columns are; that they are not there shows when they are read.
  ASSERT_OK_AND_ASSIGN(auto headless, OpenParquetFile(temp.Write("headless.parquet", good.substr(10))));
  EXPECT_FALSE(ReadAsJson(*headless, 0, 3).ok());
  // A flipped byte anywhere is an error or another value, never a crash.
  for (size_t at = 4; at < good.size() - 8; at += 61) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x55);
    absl::StatusOr<std::unique_ptr<RowFile>> file = OpenParquetFile(temp.Write("flipped.parquet", bad));
    if (file.ok() && (*file)->rows() == 3) ReadAsJson(**file, 0, 3).status().IgnoreError();
  }
}

}  // namespace
}  // namespace sluice::engine
