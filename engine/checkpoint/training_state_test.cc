#include "engine/checkpoint/training_state.h"

#include <gtest/gtest.h>

#include <limits>

#include "common/testing/status_matchers.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

using ::nlohmann::json;
using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

// No field has its default, no two the same value; some values only fit their whole type.
TrainingState Example() {
  TrainingState state;
  state.step = 101;
  state.data = {2, 3003, std::numeric_limits<uint64_t>::max(), "fingerprint"};
  state.schedule = {104, 0.1 + 0.2, 4.9406564584124654e-324};  // not short in decimal; the smallest double
  state.random = {0x9E3779B97F4A7C15, uint64_t{1} << 63};
  state.counters = {105, int64_t{1} << 60, 107, 108, 109, 110};
  state.extra = {{"kl_coefficient", "0.25"}, {"note", "\xC3\xBC"}};
  return state;
}

TEST(TrainingStateTest, RoundTripIsExact) {
  ASSERT_OK_AND_ASSIGN(const std::string text, SerializeTrainingState(Example()));
  ASSERT_OK_AND_ASSIGN(const TrainingState read, ParseTrainingState(text));
  EXPECT_EQ(read, Example());
  ASSERT_OK_AND_ASSIGN(const std::string again, SerializeTrainingState(read));
  EXPECT_EQ(again, text);
}

// Visits the path of every leaf of the written state.
template <typename Visitor>
void ForEachLeaf(const json& value, const json::json_pointer& at, Visitor visit) {
  if (!value.is_object()) return visit(at);
  for (const auto& [key, child] : value.items()) ForEachLeaf(child, at / key, visit);
}

// Every single item is in the file and comes back from it: changing it there changes the state, leaving it out is an
// error.
TEST(TrainingStateTest, EveryItemCountsAndNoneMayBeMissing) {
  const json written = json::parse(*SerializeTrainingState(Example()));
  int leaves = 0;
  ForEachLeaf(written, json::json_pointer(), [&](const json::json_pointer& at) {
    ++leaves;
    SCOPED_TRACE(at.to_string());
    json changed = written;
    if (changed[at].is_string()) {
      changed[at] = "changed";
    } else if (changed[at].is_number_float()) {
      changed[at] = 17.5;
    } else {
      changed[at] = 17;
    }
    ASSERT_OK_AND_ASSIGN(const TrainingState read, ParseTrainingState(changed.dump()));
    EXPECT_NE(read, Example());

    changed[at] = json::array();
    EXPECT_THAT(ParseTrainingState(changed.dump()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is not a")));

    if (at.parent_pointer().to_string() == "/extra") return;
    json lacking = written;
    lacking[at.parent_pointer()].erase(at.back());
    EXPECT_THAT(ParseTrainingState(lacking.dump()),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(at.back() + " is missing")));
  });
  EXPECT_EQ(leaves, 18);
}

TEST(TrainingStateTest, RefusesWhatItDoesNotKnow) {
  json state = json::parse(*SerializeTrainingState(Example()));
  state["data"]["sampler"] = 1;
  EXPECT_THAT(ParseTrainingState(state.dump()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("data.sampler is unknown")));
  EXPECT_THAT(ParseTrainingState("{"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("training_state.json: not JSON")));
  TrainingState bad = Example();
  bad.schedule.learning_rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(SerializeTrainingState(bad), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("NaN")));
}

}  // namespace
}  // namespace sluice::engine
