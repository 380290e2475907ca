// The parts of preference tuning below its role.
#include <numeric>

#include "common/config/preference.h"
#include "common/testing/status_matchers.h"
#include "engine/loss/preference_loss.h"
#include "engine/roles/preference_options.h"
#include "engine/roles/sequence_groups.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
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
