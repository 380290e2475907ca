#include "engine/data/preference_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/template/jinja/json.h"

namespace sluice::engine {
namespace {

using sluice::testing::StatusIs;
using sluice::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

constexpr char kChatMl[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
// The rendering of a prompt is not what that of the whole begins with.
const std::string kWithLength = absl::StrCat("{{ messages | length }}", kChatMl);

class PreferenceTest : public ::testing::Test {
 protected:
  PreferenceTest() {
    temp_.Write("model/tokenizer.json", ReadText("tests/golden/tokenizer/qwen2_style.tokenizer.json"));
    temp_.Write("model/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
    UseTemplate(kChatMl);
  }

  void UseTemplate(const std::string& chat_template) {
    absl::StatusOr<std::unique_ptr<ChatRowEncoder>> encoder =
        ChatRowEncoder::Load(temp_.path() / "model", chat_template, LossOn::kAssistant);
    ASSERT_OK(encoder);
    encoder_ = *std::move(encoder);
  }

  std::string Text(const EncodedRow& row) const { return encoder_->tokenizer().Decode(row.ids); }
  std::string Scored(const EncodedRow& row) const {
    std::vector<int32_t> ids;
    for (size_t t = 0; t < row.ids.size(); ++t) {
      if (row.mask[t] != 0) ids.push_back(row.ids[t]);
    }
    return encoder_->tokenizer().Decode(ids);
  }
  std::string Prompt(const EncodedRow& row, int64_t tokens) const {
    return encoder_->tokenizer().Decode(absl::MakeConstSpan(row.ids).subspan(0, static_cast<size_t>(tokens)));
  }

  absl::StatusOr<EncodedPair> Encode(const std::string& json) const {
    ASSIGN_OR_RETURN(const PreferenceSample sample, PreferenceFromRow(jinja::ParseJson(json).value(), {}));
    return EncodePair(*encoder_, sample);
  }

  TempDir temp_;
  std::unique_ptr<ChatRowEncoder> encoder_;
};

TEST_F(PreferenceTest, TurnsOfAChat) {
  ASSERT_OK_AND_ASSIGN(const EncodedPair pair,
                       Encode(R"({"prompt": "why?", "chosen": "because", "rejected": "no idea"})"));
  EXPECT_EQ(Text(pair.chosen), "<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\nbecause<|im_end|>\n");
  EXPECT_EQ(Scored(pair.chosen), "because<|im_end|>");
  EXPECT_EQ(Scored(pair.rejected), "no idea<|im_end|>");
  EXPECT_EQ(Prompt(pair.chosen, pair.prompt_tokens), "<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(pair.chosen.ids.size(), pair.chosen.mask.size());
}

// What the assistant said in the prompt is not learned.
TEST_F(PreferenceTest, OnlyTheResponseIsMarked) {
  const char* row = R"({
      "chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
                 {"role": "assistant", "content": "good"}],
      "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
                   {"role": "assistant", "content": "bad"}, {"role": "user", "content": "?"}, {"role": "assistant", "content": "worse"}]})";
  for (const std::string& chat_template : {std::string(kChatMl), kWithLength}) {
    UseTemplate(chat_template);
    ASSERT_OK_AND_ASSIGN(const EncodedPair pair, Encode(row));
    EXPECT_EQ(Scored(pair.chosen), "good<|im_end|>");
    EXPECT_EQ(Scored(pair.rejected), "bad<|im_end|>worse<|im_end|>");
  }
}

TEST_F(PreferenceTest, WholeTextsAreNotTurns) {
  ASSERT_OK_AND_ASSIGN(const EncodedPair pair,
                       Encode(R"({"chosen": "Q: why? A: because", "rejected": "Q: why? A: no"})"));
  EXPECT_EQ(Text(pair.chosen), "Q: why? A: because<|im_end|>");
  EXPECT_EQ(Scored(pair.chosen), " because<|im_end|>");
  EXPECT_EQ(Scored(pair.rejected), " no<|im_end|>");
  EXPECT_EQ(Prompt(pair.rejected, pair.prompt_tokens), "Q: why? A:");
}

TEST_F(PreferenceTest, TruncationKeepsThePromptEqual) {
  ASSERT_OK_AND_ASSIGN(const EncodedPair whole,
                       Encode(R"({"prompt": "one two three four", "chosen": "good", "rejected": "a bad one"})"));
  const int64_t longest = static_cast<int64_t>(whole.rejected.ids.size());
  EncodedPair pair = whole;
  EXPECT_THAT(TruncatePair(Truncation::kLeft, longest, &pair), ::testing::Eq(absl::StatusOr<bool>(false)));
  ASSERT_OK_AND_ASSIGN(bool cut, TruncatePair(Truncation::kLeft, longest - 2, &pair));
  EXPECT_TRUE(cut);
  EXPECT_EQ(pair.prompt_tokens, whole.prompt_tokens - 2);
  EXPECT_EQ(pair.chosen.ids, std::vector<int32_t>(whole.chosen.ids.begin() + 2, whole.chosen.ids.end()));
  EXPECT_EQ(Scored(pair.rejected), Scored(whole.rejected));

  pair = whole;
  ASSERT_OK(TruncatePair(Truncation::kLeft, 2, &pair));  // the responses alone are longer
  EXPECT_EQ(pair.prompt_tokens, 0);
  EXPECT_EQ(pair.rejected.ids.size(), 2u);

  pair = whole;
  ASSERT_OK(TruncatePair(Truncation::kRight, whole.prompt_tokens + 1, &pair));
  EXPECT_EQ(pair.prompt_tokens, whole.prompt_tokens);
  EXPECT_EQ(pair.rejected.ids,
            std::vector<int32_t>(whole.rejected.ids.begin(), whole.rejected.ids.begin() + whole.prompt_tokens + 1));

  pair = whole;
  EXPECT_THAT(
      TruncatePair(Truncation::kError, longest - 1, &pair),
      StatusIs(kInvalid, HasSubstr(absl::StrCat("has ", longest, " tokens, more than max_length ", longest - 1))));
  EXPECT_THAT(TruncatePair(Truncation::kMiddle, 3, &pair), StatusIs(kInvalid, HasSubstr("middle")));
}

TEST_F(PreferenceTest, TheUnrelatedPairOfKto) {
  const auto encode = [&](const char* json) {
    return EncodeCompletion(*encoder_, LabelledFromRow(jinja::ParseJson(json).value(), {}).value()).value();
  };
  const EncodedCompletion one = encode(R"({"prompt": "first", "completion": "right", "label": true})");
  const EncodedCompletion two = encode(R"({"prompt": "second one", "completion": "all wrong", "label": false})");
  const EncodedRow mixed = WithResponseOf(one, two);
  EXPECT_EQ(Text(mixed), "<|im_start|>user\nfirst<|im_end|>\n<|im_start|>assistant\nall wrong<|im_end|>\n");
  EXPECT_EQ(Scored(mixed), "all wrong<|im_end|>");
  EXPECT_EQ(WithResponseOf(one, one).ids, one.row.ids);
}

TEST_F(PreferenceTest, AnEpochHasEachPairOnce) {
  std::string lines;
  for (int i = 0; i < 25; ++i) {
    absl::StrAppend(&lines, "{\"prompt\": \"p", i, "\", \"chosen\": \"c", i, "\", \"rejected\": \"r\", \"margin\": ", i,
                    "}\n");
  }
  PreferenceDatasetOptions options = {.files = {temp_.Write("pairs.jsonl", lines)}, .batch_size = 10, .seed = 1};
  ASSERT_OK_AND_ASSIGN(const auto pairs, PairDataset::Open(options, *encoder_));
  EXPECT_EQ(pairs->rows(), 25);
  EXPECT_EQ(pairs->steps_per_epoch(), 3);
  std::set<int64_t> seen;
  for (int64_t step = 0; step < 3; ++step) {
    ASSERT_OK_AND_ASSIGN(const StepPairs rows, pairs->RowsForStep(step));
    EXPECT_EQ(rows.ends_epoch, step == 2);
    for (const int64_t row : rows.rows) {
      EXPECT_TRUE(seen.insert(pairs->row(row).sample_id).second);
      EXPECT_EQ(pairs->row(row).margin, static_cast<double>(pairs->row(row).sample_id));
      EXPECT_EQ(Scored(pairs->row(row).pair.chosen), absl::StrCat("c", row, "<|im_end|>"));
    }
  }
  EXPECT_EQ(seen.size(), 25u);
  EXPECT_THAT(pairs->RowsForStep(-1), StatusIs(kInvalid, HasSubstr("-1")));
  options.threads = 3;
  EXPECT_EQ(PairDataset::Open(options, *encoder_).value()->content_hash(), pairs->content_hash());
  options.max_rows = 24;
  EXPECT_NE(PairDataset::Open(options, *encoder_).value()->content_hash(), pairs->content_hash());
}

TEST_F(PreferenceTest, RowsWhoseResponseIsCutOffAreDroppedAndCounted) {
  const std::string long_prompt(200, 'x');
  PreferenceDatasetOptions options = {
      .files = {temp_.Write("labelled.jsonl", absl::StrCat(R"({"prompt": "p", "completion": "c", "label": true}
{"prompt": ")",
                                                           long_prompt, R"(", "completion": "c", "label": false}
{"prompt": "p", "completion": "d", "label": false}
)"))},
      .max_length = 20,
      .truncation = Truncation::kRight,
      .shuffle = false};
  ASSERT_OK_AND_ASSIGN(const auto rows, LabelledDataset::Open(options, *encoder_));
  EXPECT_EQ(rows->stats().rows_read, 3);
  EXPECT_EQ(rows->stats().rows_truncated, 1);
  EXPECT_EQ(rows->stats().rows_dropped, 1);
  ASSERT_EQ(rows->rows(), 2);
  EXPECT_EQ(rows->row(1).sample_id, 2);
  EXPECT_TRUE(rows->row(0).wanted);
  EXPECT_FALSE(rows->row(1).wanted);
  options.max_length = 1;
  EXPECT_THAT(LabelledDataset::Open(options, *encoder_), StatusIs(kInvalid, HasSubstr("none of the 3 rows")));
  options.truncation = Truncation::kError;
  EXPECT_THAT(LabelledDataset::Open(options, *encoder_),
              StatusIs(kInvalid, AllOf(HasSubstr("data.train_files: "), HasSubstr("labelled.jsonl:1: has "))));
}

}  // namespace
}  // namespace sluice::engine
