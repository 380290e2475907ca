#include "engine/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/data/testing/fake_row_encoder.h"

namespace sluice::engine {
namespace {

using sluice::testing::StatusIs;
using sluice::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kRows = 103;

std::string Answer(int64_t row) { return std::string(1 + row * 7 % 40, static_cast<char>('a' + row % 26)); }

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    std::string lines;
    for (int64_t row = 0; row < kRows; ++row) {
      absl::StrAppend(&lines, "{\"question\": \"", row, "?\", \"answer\": \"", Answer(row), "\"}\n");
    }
    options_.files = {temp_.Write("train.jsonl", lines)};
    options_.cache_dir = temp_.Join("cache");
    options_.batch_size = 20;
    options_.max_tokens_per_micro_batch = 128;
    options_.seed = 5;
  }

  absl::StatusOr<std::unique_ptr<Dataset>> Open() { return Dataset::Open(options_, encoder_, PosixFileSystem()); }

  TempDir temp_;
  FakeRowEncoder encoder_;
  DatasetOptions options_;
};

// What a micro-batch teaches, by row: the labels of its slots in order.
void CollectLabels(const MicroBatch& batch, std::map<int64_t, std::vector<int32_t>>* labels_of_row) {
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    auto [entry, is_new] = labels_of_row->try_emplace(batch.sample_ids[s]);
    EXPECT_TRUE(is_new) << "row " << batch.sample_ids[s] << " twice";
    for (int32_t t = batch.cu_seqlens[s]; t < batch.cu_seqlens[s + 1]; ++t) entry->second.push_back(batch.labels[t]);
  }
}

TEST_F(DatasetTest, AnEpochHasEachRowOnceForAnyWorldSize) {
  ASSERT_OK_AND_ASSIGN(auto dataset, Open());
  EXPECT_EQ(dataset->rows(), kRows);
  EXPECT_EQ(dataset->format(), "gsm8k");
  EXPECT_EQ(dataset->steps_per_epoch(), 6);
  std::map<int64_t, std::vector<int32_t>> labels_of_one_rank;
  for (int64_t world_size : {1, 2, 3, 8, 32}) {
    std::map<int64_t, std::vector<int32_t>> labels_of_row;
    for (int64_t step = 6; step < 12; ++step) {
      int64_t scored = 0, rows = 0, micro_batches = -1;
      for (int64_t rank = 0; rank < world_size; ++rank) {
        ASSERT_OK_AND_ASSIGN(const StepBatches batches, dataset->MicroBatchesForStep(step, rank, world_size));
        EXPECT_EQ(batches.epoch, 1);
        EXPECT_EQ(batches.step_in_epoch, step - 6);
        EXPECT_EQ(batches.ends_epoch, step == 11);
        EXPECT_EQ(batches.rows, step == 11 ? 3 : 20);
        EXPECT_GT(batches.fill_ratio, 0);
        EXPECT_LE(batches.fill_ratio, 1);
        if (micro_batches < 0) micro_batches = static_cast<int64_t>(batches.micro_batches.size());
        EXPECT_EQ(static_cast<int64_t>(batches.micro_batches.size()), micro_batches);
        for (const MicroBatch& batch : batches.micro_batches) {
          EXPECT_EQ(batch.token_slots(), 128);
          scored += batch.scored_tokens();
          rows += batch.sequences();
          CollectLabels(batch, &labels_of_row);
        }
        if (rank == world_size - 1) {
          EXPECT_EQ(scored, batches.scored_tokens);
          EXPECT_EQ(rows, batches.rows);
        }
      }
    }
    ASSERT_EQ(static_cast<int64_t>(labels_of_row.size()), kRows);
    if (world_size == 1) labels_of_one_rank = labels_of_row;
    EXPECT_EQ(labels_of_row, labels_of_one_rank);
  }
  for (int64_t row = 0; row < kRows; ++row) {  // exactly the answer and the end of its turn are taught
    std::vector<int32_t> taught;
    for (int32_t label : labels_of_one_rank[row]) {
      if (label != kIgnoreLabel) taught.push_back(label);
    }
    EXPECT_EQ(FakeRowEncoder::Text(taught.data(), static_cast<int64_t>(taught.size())), Answer(row) + '\0');
  }
}

TEST_F(DatasetTest, MicroBatchBudgetDoesNotChangeTheStep) {
  std::vector<std::set<int64_t>> rows_of_step[2];
  for (int i = 0; i < 2; ++i) {
    options_.max_tokens_per_micro_batch = i == 0 ? 64 : 4096;
    options_.max_sequences_per_micro_batch = i == 0 ? 1 : 0;
    ASSERT_OK_AND_ASSIGN(auto dataset, Open());
    for (int64_t step = 0; step < 12; ++step) {
      ASSERT_OK_AND_ASSIGN(const StepBatches batches, dataset->MicroBatchesForStep(step, 0, 1));
      EXPECT_EQ(batches.micro_batches.size(), i == 0 ? static_cast<size_t>(batches.rows) : 1u);
      auto& rows = rows_of_step[i].emplace_back();
      for (const MicroBatch& batch : batches.micro_batches)
        rows.insert(batch.sample_ids.begin(), batch.sample_ids.end());
    }
  }
  EXPECT_EQ(rows_of_step[0], rows_of_step[1]);
}

// A second run that starts at any step, epoch borders included, sees what the first one saw: the step is the whole
// cursor.
TEST_F(DatasetTest, ResumesAtEveryStep) {
  ASSERT_OK_AND_ASSIGN(auto first, Open());
  std::vector<StepBatches> steps;
  for (int64_t step = 0; step < 18; ++step) steps.push_back(first->MicroBatchesForStep(step, 1, 2).value());
  ASSERT_OK_AND_ASSIGN(auto second, Open());
  for (int64_t step : {17, 12, 11, 6, 5, 0}) {
    const StepBatches again = second->MicroBatchesForStep(step, 1, 2).value();
    ASSERT_EQ(again.micro_batches.size(), steps[step].micro_batches.size());
    for (size_t i = 0; i < again.micro_batches.size(); ++i) {
      EXPECT_EQ(again.micro_batches[i].input_ids, steps[step].micro_batches[i].input_ids);
      EXPECT_EQ(again.micro_batches[i].labels, steps[step].micro_batches[i].labels);
      EXPECT_EQ(again.micro_batches[i].sample_ids, steps[step].micro_batches[i].sample_ids);
    }
  }
}

TEST_F(DatasetTest, ValidationTakesTheFilesOrder) {
  options_.shuffle = false;
  ASSERT_OK_AND_ASSIGN(auto dataset, Open());
  for (int64_t step = 0; step < dataset->steps_per_epoch(); ++step) {
    ASSERT_OK_AND_ASSIGN(const StepBatches batches, dataset->MicroBatchesForStep(step, 0, 1));
    for (const MicroBatch& batch : batches.micro_batches) {
      for (int64_t id : batch.sample_ids) EXPECT_EQ(id / 20, step);
    }
  }
}

TEST_F(DatasetTest, WithoutATemplateTheTextsAreJoined) {
  encoder_.has_template = false;
  ASSERT_OK_AND_ASSIGN(auto dataset, Open());
  const TokenSpan row = dataset->row(3);
  EXPECT_EQ(FakeRowEncoder::Text(row.ids, row.tokens), "3?" + Answer(3) + '\0');
  EXPECT_EQ(row.mask[1], 0);
  EXPECT_EQ(row.mask[2], 1);
}

TEST_F(DatasetTest, ErrorsNameTheKey) {
  const auto expect = [&](const std::string& message) {
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("data.train_files: "), HasSubstr(message))));
  };
  const DatasetOptions good = options_;
  options_.max_tokens_per_micro_batch = 30;
  expect("a micro-batch holds 30");
  options_ = good;
  options_.max_length = 20;
  expect("train.jsonl:1: has 22 tokens, more than max_length 20");
  options_.truncation = Truncation::kRight;
  options_.max_length = 3;
  expect("none of the 103 rows has a token to score (103 were truncated to max_length 3)");
  options_ = good;
  options_.batch_size = 0;
  expect("batch_size is 0");
  options_ = good;
  encoder_.has_template = false;
  options_.format.system_prompt = "Be brief.";
  expect("system_prompt needs a chat template");
  options_ = good;
  options_.files = {temp_.Write("chats.jsonl", R"({"messages": [{"role": "user", "content": "a"}]})")};
  expect("format messages needs a chat template");
  options_.format.format = "text";
  expect("chats.jsonl:1: format text needs a column \"text\"; the columns here are \"messages\"");
  options_ = good;
  options_.files_key = "data.val_files";
  options_.files = {temp_.Join("none.jsonl")};
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("data.val_files: ")));
}

TEST_F(DatasetTest, NoSuchRankOrStep) {
  ASSERT_OK_AND_ASSIGN(auto dataset, Open());
  EXPECT_THAT(dataset->MicroBatchesForStep(-1, 0, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("step -1")));
  EXPECT_THAT(dataset->MicroBatchesForStep(0, 2, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 2 of 2")));
}

}  // namespace
}  // namespace sluice::engine
