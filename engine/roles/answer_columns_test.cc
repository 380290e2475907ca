#include "engine/roles/answer_columns.h"

#include <arrow/api.h>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/data/testing/fake_prompt_encoder.h"
#include "engine/exchange/batch_store.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ColumnsOrigin Of(const std::string& op, const MetricSums& metrics = {}) {
  return {.op = op, .metrics = metrics, .prompt_rows = {}, .prompt_batches = 0};
}

class AnswerColumnsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string lines;
    for (int i = 0; i < 4; ++i) {
      absl::StrAppend(&lines, "{\"prompt\": \"number ", i, "\", \"data_source\": \"s\", \"ground_truth\": \"0\"}\n");
    }
    PromptDatasetOptions options;
    options.files = {dir_.Write("prompts.jsonl", lines)};
    ASSERT_OK_AND_ASSIGN(prompts_, PromptDataset::Open(options, encoder_));
  }

  // Two answers to each of these places.
  std::vector<Answer> Generated(const std::vector<int64_t>& places) const {
    std::vector<Answer> answers;
    for (const int64_t place : places) {
      for (int i = 0; i < 2; ++i) {
        Answer& answer = answers.emplace_back();
        answer.place = place;
        answer.row = place % prompts_->rows();
        answer.sample = static_cast<uint64_t>(2 * place + i);
        answer.prompt_ids = &prompts_->prompt(answer.row).ids;
        answer.response_ids.assign(static_cast<size_t>(place + 1), static_cast<int32_t>(place));
        answer.rollout_log_prob.assign(static_cast<size_t>(place + 1), -0.25f * static_cast<float>(i + 1));
        answer.text = absl::StrCat("text ", place);
        answer.truncated = i == 1;
        answer.weight_version = 5;
      }
    }
    return answers;
  }

  sluice::testing::TempDir dir_;
  FakePromptEncoder encoder_;
  std::unique_ptr<PromptDataset> prompts_;
};

TEST_F(AnswerColumnsTest, AnswersComeAsTheyWereAndInOrder) {
  MetricSums metrics;
  metrics.AddSum("flops", 3);
  std::vector<Answer> odd = Generated({1, 3}), even = Generated({0, 2}), most_likely = Generated({1});
  most_likely.pop_back();
  ASSERT_OK_AND_ASSIGN(const auto first, ColumnsOf(Of("generate", metrics), odd, most_likely));
  ASSERT_OK_AND_ASSIGN(const auto second, ColumnsOf(Of("generate", metrics), even, {}));
  std::vector<Answer> answers, baselines;
  ASSERT_OK_AND_ASSIGN(const ColumnsOrigin origin, TakeColumns(*first, *prompts_, &answers, &baselines));
  EXPECT_EQ(origin.op, "generate");
  EXPECT_EQ(origin.metrics.Serialize(), metrics.Serialize());
  ASSERT_OK(TakeColumns(*second, *prompts_, &answers, &baselines));
  const std::vector<Answer> expected = Generated({0, 1, 2, 3});
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].place, expected[i].place);
    EXPECT_EQ(answers[i].row, expected[i].row);
    EXPECT_EQ(answers[i].sample, expected[i].sample);
    EXPECT_EQ(answers[i].prompt_ids, expected[i].prompt_ids);
    EXPECT_EQ(answers[i].response_ids, expected[i].response_ids);
    EXPECT_EQ(answers[i].rollout_log_prob, expected[i].rollout_log_prob);
    EXPECT_EQ(answers[i].text, expected[i].text);
    EXPECT_EQ(answers[i].truncated, expected[i].truncated);
    EXPECT_EQ(answers[i].weight_version, 5);
    EXPECT_FALSE(answers[i].score.has_value());
  }
  ASSERT_EQ(baselines.size(), 1u);
  EXPECT_EQ(baselines[0].text, "text 1");
  EXPECT_EQ(TakeColumns(*second, *prompts_, &answers, &baselines).status().code(), absl::StatusCode::kInternal)
      << "they came already";
}

TEST_F(AnswerColumnsTest, WhatOtherStagesMadeComesToItsAnswers) {
  std::vector<Answer> scored = Generated({0, 1});
  scored[0].score = 0.1;
  scored[0].components = {0.1, 7};
  scored[0].extracted = "42";
  scored[3].ref_log_prob = {-1.0f, -2.0f};
  std::vector<Answer> answers = Generated({0, 1}), baselines;
  for (const char* op : {"reward", "ref_logprob"}) {
    ASSERT_TRUE(HasColumns(op));
    ASSERT_OK_AND_ASSIGN(const auto batch, ColumnsOf(Of(op), scored, {}));
    ASSERT_OK(TakeColumns(*batch, *prompts_, &answers, &baselines));
  }
  EXPECT_EQ(answers[0].score, 0.1);
  EXPECT_THAT(answers[0].components, ElementsAre(0.1, 7));
  EXPECT_EQ(answers[0].extracted, "42");
  EXPECT_EQ(answers[1].score, std::nullopt) << "a reward that failed stays one";
  EXPECT_THAT(answers[1].components, IsEmpty());
  EXPECT_THAT(answers[3].ref_log_prob, ElementsAre(-1.0f, -2.0f));
  EXPECT_EQ(answers[3].text, "text 1");
}

TEST_F(AnswerColumnsTest, WhatAFilterLeavesHasItsScoresAndTheStepsPrompts) {
  std::vector<Answer> left = Generated({0, 1});
  left[2].score = 0.5;
  left[2].extracted = "7";
  ColumnsOrigin made = Of("filter");
  made.prompt_rows = {3, 1, 3};
  made.prompt_batches = 2;
  ASSERT_OK_AND_ASSIGN(const auto batch, ColumnsOf(made, left, {}));
  std::vector<Answer> answers, baselines;
  ASSERT_OK_AND_ASSIGN(const ColumnsOrigin origin, TakeColumns(*batch, *prompts_, &answers, &baselines));
  EXPECT_THAT(origin.prompt_rows, ElementsAre(3, 1, 3));
  EXPECT_EQ(origin.prompt_batches, 2);
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[2].score, 0.5);
  EXPECT_EQ(answers[2].extracted, "7");
  EXPECT_EQ(answers[2].text, "text 1");
  EXPECT_EQ(answers[3].score, std::nullopt);

  made.prompt_rows = {4};
  ASSERT_OK_AND_ASSIGN(const auto unknown, ColumnsOf(made, left, {}));
  answers.clear();
  EXPECT_THAT(TakeColumns(*unknown, *prompts_, &answers, &baselines).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("there is no prompt 4")));
  const auto nameless = batch->ReplaceSchemaMetadata(arrow::key_value_metadata({{"op", "filter"}, {"metrics", ""}}));
  EXPECT_THAT(TakeColumns(*nameless, *prompts_, &answers, &baselines).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("they do not say which prompts were chosen")));
}

TEST_F(AnswerColumnsTest, ASliceIsReadFromItsOwnBeginning) {
  ASSERT_OK_AND_ASSIGN(const auto batch, ColumnsOf(Of("generate"), Generated({0, 1, 2}), {}));
  std::vector<Answer> answers, baselines;
  ASSERT_OK(TakeColumns(*batch->Slice(2, 2), *prompts_, &answers, &baselines));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_THAT(answers[0].response_ids, ElementsAre(1, 1));
}

TEST_F(AnswerColumnsTest, AnswersThatAreNotHereAreAnError) {
  ASSERT_OK_AND_ASSIGN(const auto batch, ColumnsOf(Of("reward"), Generated({2}), {}));
  std::vector<Answer> answers = Generated({0, 1}), baselines;
  EXPECT_THAT(TakeColumns(*batch, *prompts_, &answers, &baselines).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("answer 4 to prompt 2 is not here")));
  EXPECT_FALSE(HasColumns("update"));
  EXPECT_EQ(OpOf(*batch), "reward");
  EXPECT_EQ(OpOf(*batch->ReplaceSchemaMetadata(nullptr)), "");
}

}  // namespace
}  // namespace sluice::engine
