#include "engine/roles/answer_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/testing/status_matchers.h"
#include "engine/roles/answer_bytes.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AnswerBatchTest : public ::testing::Test {
 protected:
  Answer Make(const std::vector<int32_t>* prompt, std::vector<int32_t> response) {
    Answer answer;
    answer.prompt_ids = prompt;
    answer.response_ids = std::move(response);
    answer.sample = answers_.size() + 100;
    return answer;
  }
  void SetUp() override {
    answers_.push_back(Make(&long_prompt_, {11, 12}));
    answers_.push_back(Make(&short_prompt_, {21, 22, 23}));
    answers_.push_back(Make(&short_prompt_, {31}));
  }

  const std::vector<int32_t> long_prompt_ = {1, 2, 3}, short_prompt_ = {7};
  std::vector<Answer> answers_;
};

TEST_F(AnswerBatchTest, ASlotPredictsTheNextResponseToken) {
  ASSERT_OK_AND_ASSIGN(const auto packed, PackAnswers(answers_, {0, 1, 2}, 12));
  ASSERT_EQ(packed.size(), 1u);
  const PackedAnswers& batch = packed[0];
  ASSERT_EQ(batch.answers.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const Answer& answer = answers_[batch.answers[i]];
    const Sequence& sequence = batch.sequences[i];
    EXPECT_EQ(sequence.sample, answer.sample);
    ASSERT_EQ(sequence.end - sequence.begin, answer.response_tokens());
    for (int64_t j = 0; j < answer.response_tokens(); ++j) {
      EXPECT_EQ(batch.batch.labels[sequence.begin + j], answer.response_ids[j]);
    }
  }
  EXPECT_EQ(batch.batch.scored_tokens(), 6) << "response tokens, and nothing else";
}

TEST_F(AnswerBatchTest, ArraysTravelToSlotsAndBack) {
  answers_[0].advantage = {0.5f, 1.5f};
  answers_[1].advantage = {2, 3, 4};
  answers_[2].advantage = {5};
  ASSERT_OK_AND_ASSIGN(const auto packed, PackAnswers(answers_, {0, 1, 2}, 6));
  ASSERT_EQ(packed.size(), 2u) << "six slots hold the long one, or the two short ones";
  for (const PackedAnswers& batch : packed) {
    std::vector<float> slots = BySlot(answers_, batch, &Answer::advantage);
    for (float& value : slots) value *= 2;
    FromSlots(slots, batch, &Answer::ref_log_prob, absl::MakeSpan(answers_));
  }
  EXPECT_THAT(answers_[0].ref_log_prob, ElementsAre(1, 3));
  EXPECT_THAT(answers_[1].ref_log_prob, ElementsAre(4, 6, 8));
  EXPECT_THAT(answers_[2].ref_log_prob, ElementsAre(10));

  const ResponseTokens tokens(answers_);
  EXPECT_EQ(tokens.tokens, 6);
  EXPECT_THAT(tokens.Gather(answers_, &Answer::advantage), ElementsAre(0.5f, 1.5f, 2, 3, 4, 5));
  tokens.Scatter(std::vector<float>{1, 2, 3, 4, 5, 6}, &Answer::old_log_prob, absl::MakeSpan(answers_));
  EXPECT_THAT(answers_[1].old_log_prob, ElementsAre(3, 4, 5));
}

TEST_F(AnswerBatchTest, MaskedTokensCountNowhere) {
  ASSERT_OK_AND_ASSIGN(const auto whole, PackAnswers(answers_, {0, 1, 2}, 12));
  EXPECT_TRUE(whole[0].mask.empty());
  answers_[1].mask = {1, 0, 1};
  EXPECT_EQ(answers_[0].counted_tokens(), 2);
  EXPECT_EQ(answers_[1].counted_tokens(), 2);
  ASSERT_OK_AND_ASSIGN(const auto packed, PackAnswers(answers_, {0, 1, 2}, 12));
  const TokenBatch batch = packed[0].tokens();
  EXPECT_EQ(batch.tokens, 12);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(CountedTokens(batch, packed[0].sequences[i]), answers_[packed[0].answers[i]].counted_tokens()) << i;
    if (packed[0].answers[i] != 1) continue;
    EXPECT_FALSE(batch.Counts(packed[0].sequences[i].begin + 1));
  }
  const ResponseTokens tokens(answers_);
  EXPECT_THAT(tokens.batch().mask, ElementsAre(1, 1, 1, 0, 1, 1));
  tokens.Scatter(std::vector<uint8_t>{0, 1, 1, 1, 0, 0}, &Answer::mask, absl::MakeSpan(answers_));
  EXPECT_THAT(answers_[0].mask, ElementsAre(0, 1));
  EXPECT_FALSE(answers_[2].Counts(0));
}

TEST_F(AnswerBatchTest, ChosenAnswersOnlyAndNoneIsNoBatch) {
  ASSERT_OK_AND_ASSIGN(const auto packed, PackAnswers(answers_, {2}, 12));
  ASSERT_EQ(packed.size(), 1u);
  EXPECT_THAT(packed[0].answers, ElementsAre(2));
  ASSERT_OK_AND_ASSIGN(const auto none, PackAnswers(answers_, {}, 12));
  EXPECT_TRUE(none.empty());
  EXPECT_THAT(PackAnswers(answers_, {0}, 4), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("5")));
}

TEST_F(AnswerBatchTest, AnswersTravelWhole) {
  Answer& full = answers_[1];
  full.place = 3;
  full.row = 41;
  full.text = std::string("\0\xff text", 7);
  full.truncated = true;
  full.weight_version = 5;
  full.rollout_log_prob = {-1, -2, -3};
  full.score = 0.1;
  full.filter_value = -0.0;
  full.components = {1, std::nan("")};
  full.extracted = "18";
  full.old_log_prob = {-4, -5, -6};
  full.ref_log_prob = {-7, -8, -9};
  full.value = {1, 2, 3};
  full.advantage = {4, 5, 6};
  full.returns = {7, 8, 9};
  full.importance_weight = {0.5f, 1, 2};
  full.mask = {1, 0, 1};
  full.log_prob = {-10, -11, -12};
  full.selected = {0, 0, 1};
  full.learned = false;
  std::string bytes;
  for (const Answer& answer : answers_) AppendAnswer(answer, &bytes);
  std::vector<Answer> read;
  ASSERT_OK(ParseAnswers(bytes, &read));
  ASSERT_EQ(read.size(), 3u);
  // Field by field, in the form in which they travel; and the form is not empty.
  for (size_t i = 0; i < 3; ++i) {
    std::string before, after;
    AppendAnswer(answers_[i], &before);
    AppendAnswer(read[i], &after);
    EXPECT_EQ(before, after);
    EXPECT_EQ(read[i].response_ids, answers_[i].response_ids);
    EXPECT_EQ(read[i].prompt_ids, nullptr);
  }
  EXPECT_EQ(read[1].text, full.text);
  EXPECT_EQ(read[1].score, 0.1);
  EXPECT_EQ(read[0].score, std::nullopt);
  EXPECT_EQ(read[1].mask, full.mask);
  EXPECT_EQ(read[1].returns, full.returns);
  EXPECT_TRUE(read[1].truncated);
  EXPECT_FALSE(read[1].learned);
  EXPECT_TRUE(std::isnan(read[1].components[1]));

  std::vector<Answer> none;
  EXPECT_OK(ParseAnswers("", &none));
  EXPECT_TRUE(none.empty());
  for (const size_t length : {size_t{1}, size_t{20}, bytes.size() - 1}) {
    EXPECT_THAT(ParseAnswers(bytes.substr(0, length), &none),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("answers of another rank")))
        << length;
  }
}

}  // namespace
}  // namespace sluice::engine
