#include "engine/roles/rollout_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/data/row_file.h"
#include "engine/data/testing/fake_prompt_encoder.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RolloutDumpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PromptDatasetOptions options;
    options.files = {folder_.Write("prompts.jsonl",
                                   "{\"prompt\": \"one\", \"data_source\": \"a\", \"ground_truth\": \"1\"}\n"
                                   "{\"prompt\": \"two\", \"data_source\": \"b\", \"ground_truth\": \"2\"}\n")};
    options.shuffle = false;
    ASSERT_OK_AND_ASSIGN(prompts_, PromptDataset::Open(options, FakePromptEncoder()));
    learned_.place = 1;
    learned_.row = 1;
    learned_.sample = 9;
    learned_.response_ids = {5, 6, 7};
    learned_.text = "\xC3\xA4 \"answer\"\nof two lines";
    learned_.truncated = true;
    learned_.weight_version = 4;
    learned_.score = 0.25;
    learned_.advantage = {1, 2, 6};
    failed_.row = 0;
    failed_.place = -1;
    failed_.sample = 2;
    failed_.response_ids = {8};
    failed_.learned = false;
  }

  TempDir folder_;
  std::unique_ptr<PromptDataset> prompts_;
  Answer learned_, failed_;
};

TEST_F(RolloutDumpTest, IsReadBackAsItWas) {
  const std::string folder = folder_.Join("new/answers");
  ASSERT_OK(DumpRollout(folder, 12, 3, *prompts_, {&learned_, &failed_}));
  ASSERT_OK_AND_ASSIGN(const auto file, OpenParquetFile(folder + "/step_12.rank_3.parquet"));
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> columns, file->Columns());
  EXPECT_THAT(columns,
              ElementsAre("step", "place", "sample", "row", "data_source", "prompt", "response", "ground_truth",
                          "response_tokens", "truncated", "weight_version", "score", "advantage", "learned"));
  std::vector<Row> rows;
  ASSERT_OK(file->Read(0, file->rows(), {}, &rows));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].Field("step").int_value(), 12);
  EXPECT_EQ(rows[0].Field("place").int_value(), 1);
  EXPECT_EQ(rows[0].Field("sample").int_value(), 9);
  EXPECT_EQ(rows[0].Field("row").int_value(), 1);
  EXPECT_EQ(rows[0].Field("data_source").string(), "b");
  EXPECT_THAT(rows[0].Field("prompt").string(), HasSubstr("two"));
  EXPECT_EQ(rows[0].Field("response").string(), learned_.text);
  EXPECT_EQ(rows[0].Field("ground_truth").string(), "2");
  EXPECT_EQ(rows[0].Field("response_tokens").int_value(), 3);
  EXPECT_TRUE(rows[0].Field("truncated").bool_value());
  EXPECT_EQ(rows[0].Field("weight_version").int_value(), 4);
  EXPECT_EQ(rows[0].Field("score").float_value(), 0.25);
  EXPECT_EQ(rows[0].Field("advantage").float_value(), 3) << "the mean";
  EXPECT_TRUE(rows[0].Field("learned").bool_value());
  EXPECT_EQ(rows[1].Field("place").int_value(), -1);
  EXPECT_TRUE(rows[1].Field("score").is_none()) << "the reward failed: not 0";
  EXPECT_EQ(rows[1].Field("advantage").float_value(), 0);
  EXPECT_FALSE(rows[1].Field("learned").bool_value());
}

TEST_F(RolloutDumpTest, ReplacesWhatIsThereAndLeavesNothingElse) {
  ASSERT_OK(DumpRollout(folder_.Join("answers"), 1, 0, *prompts_, {&learned_, &failed_}));
  ASSERT_OK(DumpRollout(folder_.Join("answers"), 1, 0, *prompts_, {}));
  ASSERT_OK_AND_ASSIGN(const auto file, OpenParquetFile(folder_.Join("answers/step_1.rank_0.parquet")));
  EXPECT_EQ(file->rows(), 0);
  int64_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.Join("answers"))) ++files;
  EXPECT_EQ(files, 1);
}

}  // namespace
}  // namespace sluice::engine
