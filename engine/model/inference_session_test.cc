#include "engine/model/inference_session.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/testing/status_matchers.h"
#include "engine/model/causal_lm.h"
#include "engine/model/testing/golden_model.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

class InferenceSessionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto golden = testing::LoadGoldenModel(GetParam());
    ASSERT_OK(golden);
    batch_ = testing::OneSequence(golden->batch, 0);
    config_ = golden->config;
    auto parameters = testing::LoadGoldenParameters(*golden, GetParam(), {});
    ASSERT_OK(parameters);
    parameters_ = *std::move(parameters);
    auto model = CausalLm::Create(parameters_.get(), {.token_slots = 64, .backward = false});
    ASSERT_OK(model);
    model_ = *std::move(model);
  }

  // The whole sequence through the packed model: logits of its last slot.
  std::vector<float> LastLogits(const std::vector<int32_t>& ids) {
    const auto logits = model_->Logits(
        testing::Pack({ids}, {std::vector<int32_t>(ids.size(), kIgnoreLabel)}, static_cast<int64_t>(ids.size())));
    EXPECT_OK(logits);
    return {logits->end() - config_.vocab_size, logits->end()};
  }

  MicroBatch batch_;
  ModelConfig config_;
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<CausalLm> model_;
};

TEST_P(InferenceSessionTest, AnyWayOfFeedingGivesTheModelsLogits) {
  const std::vector<int32_t>& ids = batch_.input_ids;  // 11 tokens, longer than every window of the cases
  for (const int64_t chunk : {1, 3, 100}) {
    ASSERT_OK_AND_ASSIGN(const auto session,
                         InferenceSession::Create(parameters_.get(), {.max_tokens = 16, .chunk_tokens = chunk}));
    ASSERT_OK_AND_ASSIGN(std::vector<float> logits, session->Append(std::span(ids).first(7)));
    EXPECT_EQ(testing::Difference(logits, LastLogits({ids.begin(), ids.begin() + 7}), 1e-5, 2e-6), "");
    for (size_t i = 7; i < ids.size(); ++i) {
      ASSERT_OK_AND_ASSIGN(logits, session->Append(std::span(ids).subspan(i, 1)));
      EXPECT_EQ(
          testing::Difference(logits, LastLogits({ids.begin(), ids.begin() + static_cast<int64_t>(i) + 1}), 1e-5, 2e-6),
          "");
    }
    EXPECT_EQ(session->length(), 11);
  }
}

TEST_P(InferenceSessionTest, GreedyTakesTheLikeliestAndStops) {
  const std::vector<int32_t> prompt(batch_.input_ids.begin(), batch_.input_ids.begin() + 5);
  std::vector<int32_t> sequence = prompt, want;
  for (int i = 0; i < 6; ++i) {
    const std::vector<float> logits = LastLogits(sequence);
    want.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    sequence.push_back(want.back());
  }
  ASSERT_OK_AND_ASSIGN(const auto session, InferenceSession::Create(parameters_.get(), {.max_tokens = 16}));
  ASSERT_OK_AND_ASSIGN(const GeneratedTokens all, GenerateGreedy(*session, prompt, 6, {}));
  EXPECT_EQ(all.token_ids, want);
  EXPECT_FALSE(all.stopped);

  // A stop token ends the text before it; a second generation starts afresh.
  const std::vector<int32_t> stop = {want[3]};
  const size_t first = static_cast<size_t>(std::find(want.begin(), want.end(), want[3]) - want.begin());
  ASSERT_OK_AND_ASSIGN(const GeneratedTokens stopped, GenerateGreedy(*session, prompt, 6, stop));
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.token_ids, std::vector<int32_t>(want.begin(), want.begin() + static_cast<int64_t>(first)));

  // The session's end is the other way to end.
  ASSERT_OK_AND_ASSIGN(const auto small, InferenceSession::Create(parameters_.get(), {.max_tokens = 7}));
  ASSERT_OK_AND_ASSIGN(const GeneratedTokens cut, GenerateGreedy(*small, prompt, 6, {}));
  EXPECT_EQ(cut.token_ids, std::vector<int32_t>(want.begin(), want.begin() + 3));
}

TEST_P(InferenceSessionTest, RefusesWhatDoesNotFit) {
  ASSERT_OK_AND_ASSIGN(const auto session, InferenceSession::Create(parameters_.get(), {.max_tokens = 3}));
  EXPECT_THAT(session->Append(batch_.input_ids), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("11 tokens")));
  const std::vector<int32_t> unknown = {64};
  EXPECT_THAT(session->Append(unknown), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token id 64")));
  EXPECT_THAT(session->Append({}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no tokens")));
}

INSTANTIATE_TEST_SUITE_P(Architectures, InferenceSessionTest, ::testing::ValuesIn(testing::GoldenModelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice::engine
