#include "tools/cli/replay_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace sluice::cli {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(NumbersOfStepTest, AreThoseThatAStepDecides) {
  const std::string metrics =
      "{\"step\":1,\"train/loss\":0.5,\"train/grad_norm\":1.0}\n"
      "{\"step\":2,\"val/loss\":3}\n"
      "{\"step\":2,\"train/loss\":0.1234567890123456789,\"train/grad_norm\":null,\"perf/seconds\":3,"
      "\"timing_s/update\":1,\"perf/peak_host_bytes\":9,\"perf/model_flops\":7.0}\n"
      "not a line\n";
  const auto numbers = NumbersOfStep(metrics, 2);
  ASSERT_TRUE(numbers.has_value());
  EXPECT_THAT(*numbers, ElementsAre(Pair("perf/model_flops", "7.0"), Pair("step", "2"), Pair("train/grad_norm", "null"),
                                    Pair("train/loss", "0.12345678901234568")));
  EXPECT_FALSE(NumbersOfStep(metrics, 3).has_value());
}

TEST(TensorChecksumsTest, AreThoseOfTheManifest) {
  const auto checksums = TensorChecksums(
      R"({"files": [{"name": "weights.safetensors", "bytes": 3, "crc32c": "0a"}, {"name": "training_state.json", "bytes": 1, "crc32c": "0b"}]})");
  ASSERT_OK(checksums);
  EXPECT_THAT(*checksums, ElementsAre(Pair("weights.safetensors", "0a")));
  for (const char* text : {"", "[]", "{}", R"({"files": [3]})"}) {
    EXPECT_THAT(TensorChecksums(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("manifest"))) << text;
  }
}

TEST(CheckpointBeforeTest, IsTheNewestBelow) {
  EXPECT_EQ(CheckpointBefore({2, 4, 6}, 6), 4);
  EXPECT_EQ(CheckpointBefore({6, 2, 4}, 5), 4);
  EXPECT_EQ(CheckpointBefore({2}, 2), 0);
  EXPECT_EQ(CheckpointBefore({}, 9), 0);
}

TEST(DifferencesTest, AreOfBothSides) {
  const auto differences = Differences({{"a", "1"}, {"b", "2"}, {"c", "3"}}, {{"a", "1"}, {"b", "5"}, {"d", "4"}});
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].name, "b");
  EXPECT_EQ(differences[0].recorded, "2");
  EXPECT_EQ(differences[0].again, "5");
  EXPECT_EQ(differences[1].again, "-");
  EXPECT_EQ(differences[2].recorded, "-");
}

}  // namespace
}  // namespace sluice::cli
