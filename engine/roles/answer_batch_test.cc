#include "engine/roles/answer_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

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

}  // namespace
}  // namespace sluice::engine
