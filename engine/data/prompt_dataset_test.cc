#include "engine/data/prompt_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/testing/shared_dir.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/data/chat_row_encoder.h"
#include "engine/data/testing/fake_prompt_encoder.h"

namespace sluice::engine {
namespace {

using sluice::testing::StatusIs;
using sluice::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kRows = 1203;  // more than two parts of the work

class PromptDatasetTest : public ::testing::Test {
 protected:
  PromptDatasetTest() {
    std::string lines;
    for (int64_t i = 0; i < kRows; ++i) {
      absl::StrAppend(&lines, "{\"prompt\": \"", i, " ", std::string(i % 40, 'x'), "\", \"data_source\": \"s", i % 2,
                      "\", \"ground_truth\": \"", i, "\", \"extra_info\": {\"index\": ", i, "}}\n");
    }
    options_.files = {temp_.Write("train.jsonl", lines)};
    options_.batch_size = 100;
    options_.seed = 3;
  }

  absl::StatusOr<std::unique_ptr<PromptDataset>> Open() { return PromptDataset::Open(options_, encoder_); }

  TempDir temp_;
  FakePromptEncoder encoder_;
  PromptDatasetOptions options_;
};

TEST_F(PromptDatasetTest, AnEpochHasEachPromptOnce) {
  ASSERT_OK_AND_ASSIGN(const auto prompts, Open());
  EXPECT_EQ(prompts->rows(), kRows);
  EXPECT_EQ(prompts->steps_per_epoch(), 13);
  EXPECT_EQ(prompts->format(), "prompt");
  EXPECT_THAT(prompts->data_sources(), ElementsAre("s0", "s1"));
  std::vector<int64_t> first_epoch;
  for (int64_t step = 0; step < 13; ++step) {
    ASSERT_OK_AND_ASSIGN(const StepPrompts rows, prompts->PromptsForStep(step));
    EXPECT_EQ(rows.epoch, 0);
    EXPECT_EQ(rows.ends_epoch, step == 12);
    EXPECT_EQ(rows.rows.size(), step == 12 ? 3u : 100u);
    first_epoch.insert(first_epoch.end(), rows.rows.begin(), rows.rows.end());
  }
  EXPECT_EQ(std::set<int64_t>(first_epoch.begin(), first_epoch.end()).size(), static_cast<size_t>(kRows));
  ASSERT_OK_AND_ASSIGN(const StepPrompts next, prompts->PromptsForStep(13));
  EXPECT_EQ(next.epoch, 1);
  EXPECT_NE(next.rows, std::vector<int64_t>(first_epoch.begin(), first_epoch.begin() + 100));
  EXPECT_THAT(prompts->PromptsForStep(-1), StatusIs(kInvalid, HasSubstr("-1")));
}

TEST_F(PromptDatasetTest, StepsDependOnSeedAndStepAlone) {
  ASSERT_OK_AND_ASSIGN(const auto one, Open());
  options_.threads = 4;
  ASSERT_OK_AND_ASSIGN(const auto same, Open());
  EXPECT_EQ(one->content_hash(), same->content_hash());
  EXPECT_EQ(one->PromptsForStep(20)->rows, same->PromptsForStep(20)->rows);
  options_.seed = 4;
  ASSERT_OK_AND_ASSIGN(const auto other_seed, Open());
  EXPECT_NE(one->PromptsForStep(20)->rows, other_seed->PromptsForStep(20)->rows);
  EXPECT_EQ(one->content_hash(), other_seed->content_hash());
  options_.max_rows = kRows - 1;
  ASSERT_OK_AND_ASSIGN(const auto fewer, Open());
  EXPECT_NE(one->content_hash(), fewer->content_hash());
}

TEST_F(PromptDatasetTest, ValidationIsAllRowsInOrder) {
  options_.shuffle = false;
  ASSERT_OK_AND_ASSIGN(const auto prompts, Open());
  EXPECT_EQ(prompts->PromptsForStep(1)->rows[0], 100);
  for (int64_t i = 0; i < kRows; ++i) {
    const Prompt& prompt = prompts->prompt(i);
    EXPECT_EQ(prompt.sample_id, i);
    EXPECT_EQ(prompt.ground_truth, absl::StrCat(i));
    EXPECT_EQ(prompt.extra_info_json, absl::StrCat("{\"index\": ", i, "}"));
    EXPECT_EQ(prompt.text, absl::StrCat("<user>", i, " ", std::string(i % 40, 'x'), "<assistant>"));
    EXPECT_EQ(prompt.ids.size(), prompt.text.size());
  }
}

TEST_F(PromptDatasetTest, OverlongPromptsAreFilteredAndCounted) {
  options_.max_prompt_length = 30;
  options_.filter_overlong_prompts = true;
  ASSERT_OK_AND_ASSIGN(const auto prompts, Open());
  EXPECT_EQ(prompts->stats().rows_read, kRows);
  EXPECT_GT(prompts->stats().rows_filtered, 0);
  EXPECT_EQ(prompts->stats().rows_filtered + prompts->rows(), kRows);
  EXPECT_EQ(prompts->stats().longest_prompt, 30);
  int64_t last = -1;
  for (int64_t i = 0; i < prompts->rows(); ++i) {
    EXPECT_LE(prompts->prompt(i).ids.size(), 30u);
    EXPECT_GT(prompts->prompt(i).sample_id, last);
    last = prompts->prompt(i).sample_id;
  }
  options_.max_prompt_length = 5;
  EXPECT_THAT(Open(), StatusIs(kInvalid, HasSubstr("all 1203 prompts are longer than max_prompt_length 5")));
}

TEST_F(PromptDatasetTest, OverlongPromptsAreCutOrRefused) {
  options_.files = {temp_.Write("one.jsonl", R"({"prompt": "0123456789"})")};
  options_.max_prompt_length = 8;
  EXPECT_THAT(Open(), StatusIs(kInvalid, AllOf(HasSubstr("data.train_files"), HasSubstr("one.jsonl:1"),
                                               HasSubstr("has 27 tokens"), HasSubstr("max_prompt_length 8"))));
  const std::pair<Truncation, std::string> cases[] = {
      {Truncation::kLeft, "sistant>"}, {Truncation::kRight, "<user>01"}, {Truncation::kMiddle, "<useant>"}};
  for (const auto& [truncation, expected] : cases) {
    options_.truncation = truncation;
    ASSERT_OK_AND_ASSIGN(const auto prompts, Open());
    EXPECT_EQ(std::string(prompts->prompt(0).ids.begin(), prompts->prompt(0).ids.end()), expected);
    EXPECT_EQ(prompts->prompt(0).text, "<user>0123456789<assistant>");
    EXPECT_EQ(prompts->stats().rows_truncated, 1);
  }
}

TEST_F(PromptDatasetTest, ErrorsNameKeyFileAndRow) {
  options_.files_key = "data.val_files";
  options_.files = {temp_.Write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"\"}\n{\"prompt\": 5}\n")};
  EXPECT_THAT(Open(), StatusIs(kInvalid, AllOf(HasSubstr("data.val_files: "), HasSubstr("bad.jsonl:2: "),
                                               HasSubstr("empty prompt"))));
  options_.files = {temp_.Write("refused.jsonl", R"({"prompt": "refuse"})")};
  EXPECT_THAT(Open(), StatusIs(kInvalid, HasSubstr("refused.jsonl:1: refused")));
  options_.batch_size = 0;
  EXPECT_THAT(Open(), StatusIs(kInvalid, HasSubstr("batch_size is 0")));
}

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

constexpr char kChatMl[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

TEST_F(PromptDatasetTest, TemplateAndTokenizerOfAModelFolder) {
  temp_.Write("model/tokenizer.json", ReadText("tests/golden/tokenizer/qwen2_style.tokenizer.json"));
  temp_.Write("model/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  ASSERT_OK_AND_ASSIGN(const auto encoder, ChatRowEncoder::Load(temp_.path() / "model", kChatMl, LossOn::kAssistant));
  options_.files = {temp_.Write("p.jsonl", R"({"prompt": [{"role": "user", "content": "2+2?"}]})")};
  ASSERT_OK_AND_ASSIGN(const auto prompts, PromptDataset::Open(options_, *encoder));
  const std::string text = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(prompts->prompt(0).text, text);
  EXPECT_EQ(prompts->prompt(0).ids, encoder->tokenizer().Encode(text));
  // The prompt is what the training row begins with.
  Sample row;
  row.kind = Sample::Kind::kPromptResponse;
  row.messages = jinja::Value::List(
      {jinja::Value::DictOf({{"role", jinja::Value::String("user")}, {"content", jinja::Value::String("2+2?")}}),
       jinja::Value::DictOf({{"role", jinja::Value::String("assistant")}, {"content", jinja::Value::String("4")}})});
  ASSERT_OK_AND_ASSIGN(const EncodedRow whole, encoder->Encode(row));
  const std::vector<int32_t>& ids = prompts->prompt(0).ids;
  ASSERT_LT(ids.size(), whole.ids.size());
  EXPECT_TRUE(std::equal(ids.begin(), ids.end(), whole.ids.begin()));
  EXPECT_EQ(whole.mask[ids.size() - 1], 0);
  EXPECT_EQ(whole.mask[ids.size()], 1);
}

TEST_F(PromptDatasetTest, TheWholeGsm8kSet) {
  const auto shared = sluice::testing::SharedDir();
  if (!shared.has_value()) GTEST_SKIP() << "no folder of shared test inputs";
  options_.files = {(*shared / "data/gsm8k/test.jsonl").string()};
  options_.shuffle = false;
  options_.max_prompt_length = 2000;
  ASSERT_OK_AND_ASSIGN(const auto prompts, Open());
  EXPECT_EQ(prompts->rows(), 1319);
  EXPECT_EQ(prompts->prompt(0).ground_truth, "18");
  EXPECT_THAT(prompts->data_sources(), ElementsAre("openai/gsm8k"));
  EXPECT_THAT(prompts->prompt(0).text, HasSubstr("final answer after \"####\".<assistant>"));
}

// The prompts that come with the project.
TEST_F(PromptDatasetTest, TheArithmeticOfTheConfigs) {
  options_.files = {"configs/data/arithmetic/train.jsonl", "configs/data/arithmetic/test.jsonl"};
  ASSERT_OK_AND_ASSIGN(const auto prompts, Open());
  EXPECT_GT(prompts->rows(), 500);
  EXPECT_THAT(prompts->data_sources(), ElementsAre("arithmetic"));
  std::set<std::string> texts;
  for (int64_t i = 0; i < prompts->rows(); ++i) {
    EXPECT_FALSE(prompts->prompt(i).ground_truth.empty());
    texts.insert(prompts->prompt(i).text);
  }
  EXPECT_EQ(texts.size(), static_cast<size_t>(prompts->rows()));  // none of the test set is in the training set
}

}  // namespace
}  // namespace sluice::engine
