// The parts of preference tuning below its role.
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>

#include "common/config/plan.h"
#include "common/config/preference.h"
#include "common/config/testing/minimal_job.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/data/chat_row_encoder.h"
#include "engine/loss/preference_loss.h"
#include "engine/roles/memory_check.h"
#include "engine/roles/preference_data.h"
#include "engine/roles/preference_options.h"
#include "engine/roles/sequence_groups.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::MinimalJob;
using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// `prompt` tokens that are not learned, then `response` that are.
EncodedRow RowOf(int prompt, int response, int32_t first) {
  EncodedRow row;
  row.ids.resize(static_cast<size_t>(prompt + response));
  std::iota(row.ids.begin(), row.ids.end(), first);
  row.mask.assign(static_cast<size_t>(prompt), 0);
  row.mask.insert(row.mask.end(), static_cast<size_t>(response), 1);
  return row;
}

TEST(SequenceGroupsTest, AGroupIsNeverSplit) {
  std::vector<EncodedRow> rows;
  for (int i = 0; i < 20; ++i) rows.push_back(RowOf(2 + i % 3, 1 + i % 4, 100 * i));
  std::vector<SequenceGroup> groups;
  for (size_t i = 0; i < rows.size(); i += 2) groups.push_back({{&rows[i], &rows[i + 1]}, static_cast<int64_t>(i / 2)});
  for (const int64_t ranks : {1, 3}) {
    ASSERT_OK_AND_ASSIGN(const BatchPlan plan, PlanGroups(groups, ranks, 32));
    EXPECT_GT(plan.micro_batches_per_rank(), 1);
    std::vector<int> seen(groups.size(), 0);
    for (const auto& rank : plan.ranks) {
      for (const std::vector<int32_t>& micro_batch : rank) {
        const PackedGroups packed = PackGroups(groups, micro_batch, 32);
        ASSERT_EQ(packed.sequences.size(), 2 * micro_batch.size());
        EXPECT_EQ(packed.tokens().tokens, 32);
        EXPECT_OK(Validate(packed.tokens()));
        for (size_t i = 0; i < micro_batch.size(); ++i) {
          const auto place = static_cast<size_t>(micro_batch[i]);
          ++seen[place];
          int64_t scored = 0;
          for (size_t side = 0; side < 2; ++side) {
            const Sequence& sequence = packed.sequences[2 * i + side];
            EXPECT_EQ(packed.batch.input_ids[static_cast<size_t>(sequence.begin)],
                      groups[place].sequences[side]->ids[0]);
            scored += CountedTokens(packed.tokens(), sequence);
          }
          EXPECT_EQ(scored, groups[place].scored_tokens());
        }
      }
    }
    EXPECT_EQ(seen, std::vector<int>(groups.size(), 1));
  }
}

TEST(SequenceGroupsTest, AGroupThatDoesNotFit) {
  const EncodedRow row = RowOf(3, 4, 0);
  const std::vector<SequenceGroup> groups = {{{&row, &row}, 0}};
  EXPECT_EQ(groups[0].tokens(), 14);
  EXPECT_EQ(groups[0].scored_tokens(), 8);
  EXPECT_EQ(groups[0].squared_lengths(), 98);
  EXPECT_OK(PlanGroups(groups, 1, 14));
  EXPECT_THAT(PlanGroups(groups, 1, 13), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("14")));
}

class MismatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_.path() / "model");
    std::filesystem::copy_file("tests/golden/tokenizer/qwen2_style.tokenizer.json",
                               folder_.path() / "model/tokenizer.json");
    folder_.Write("model/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
    ASSERT_OK_AND_ASSIGN(encoder_, ChatRowEncoder::Load(folder_.Join("model"), "", LossOn::kAssistant));
    PreferenceDatasetOptions options;
    options.files = {folder_.Write("rows.jsonl", R"({"prompt": "aa", "completion": "x", "label": true})"
                                                 "\n"
                                                 R"({"prompt": "bb", "completion": "yy", "label": false})"
                                                 "\n"
                                                 R"({"prompt": "cc", "completion": "zzz", "label": true})"
                                                 "\n")};
    auto data = PreferenceData::Open(/*pairs=*/false, options, *encoder_);
    ASSERT_OK(data);
    data_.emplace(*std::move(data));
  }

  std::string Text(const EncodedRow& row) const { return encoder_->tokenizer().Decode(row.ids); }

  sluice::testing::TempDir folder_;
  std::unique_ptr<ChatRowEncoder> encoder_;
  std::optional<PreferenceData> data_;
};

TEST_F(MismatchTest, EachPromptHasTheResponseToTheOneBefore) {
  const std::vector<EncodedRow> rows = MismatchedRows(*data_, {2, 0, 1}, 100);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(Text(rows[0]), AllOf(HasSubstr("cc"), HasSubstr("yy")));
  EXPECT_THAT(Text(rows[1]), AllOf(HasSubstr("aa"), HasSubstr("zzz")));
  EXPECT_THAT(Text(rows[2]), AllOf(HasSubstr("bb"), HasSubstr("x")));
  for (const EncodedRow& row : rows) EXPECT_GT(SequenceGroup({{&row}, 0}).scored_tokens(), 0);
}

TEST_F(MismatchTest, IsCutToTheLongestAllowed) {
  for (const EncodedRow& row : MismatchedRows(*data_, {0, 1, 2}, 3)) {
    EXPECT_EQ(row.ids.size(), 3u);
    EXPECT_EQ(row.mask.size(), 3u);
  }
}

TEST_F(MismatchTest, ASingleAnswerHasNone) { EXPECT_TRUE(MismatchedRows(*data_, {1}, 100).empty()); }

TEST(ReferenceMemoryTest, ThePlanAndTheCheckCountIt) {
  constexpr char kFolder[] = "tests/golden/model/llama_llama3_rope";
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, LoadModelConfig(kFolder));
  ASSERT_OK_AND_ASSIGN(const ModelFacts facts, ParseModelFacts(config.json));
  const v1::JobSpec dpo = MinimalJob({"recipe=dpo"}), simpo = MinimalJob({"recipe=simpo"});
  EXPECT_EQ(NeedsOnCuda(simpo, config, true, {}).reference, 0);
  const int64_t needed = NeedsOnCuda(dpo, config, true, {}).reference;
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(dpo, facts, {}));
  int64_t planned = 0;
  for (const Plan::Memory& part : plan.memory) {
    if (part.part.starts_with("reference ")) planned += part.bytes;
  }
  EXPECT_GT(needed, 0);
  // Parts of the engine's begin at round addresses.
  EXPECT_NEAR(static_cast<double>(planned), static_cast<double>(needed), 0.02 * static_cast<double>(needed));
}

TEST(PreferenceOptionsTest, TheKeysChoicesAreTheLossesOfTheLibrary) {
  for (const PreferenceLossInfo& info : PreferenceLosses()) {
    v1::JobSpec spec;
    spec.mutable_preference()->set_loss_type(std::string(info.name));
    spec.mutable_preference()->set_beta(0.25);
    EXPECT_EQ(ComparesWithReference(spec.preference()), info.needs_reference) << info.name;
    ASSERT_OK_AND_ASSIGN(const PreferenceTuning tuning, PreferenceTuningOf(spec));
    EXPECT_TRUE(tuning.pairs);
    EXPECT_EQ(tuning.of_pairs.type, info.type);
    EXPECT_EQ(tuning.of_pairs.beta, 0.25);
  }
  v1::JobSpec kto;
  kto.mutable_preference()->set_loss_type("kto");
  kto.mutable_preference()->set_beta(0.5);
  kto.mutable_preference()->set_undesirable_weight(3);
  ASSERT_OK_AND_ASSIGN(const PreferenceTuning tuning, PreferenceTuningOf(kto));
  EXPECT_FALSE(tuning.pairs);
  EXPECT_EQ(tuning.kto.beta, 0.5);
  EXPECT_EQ(tuning.kto.undesirable_weight, 3);
  EXPECT_TRUE(ComparesWithReference(kto.preference()));
  kto.mutable_preference()->set_loss_type("other");
  EXPECT_THAT(PreferenceTuningOf(kto),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("preference.loss_type: unknown value other")));
}

}  // namespace
}  // namespace sluice::engine
