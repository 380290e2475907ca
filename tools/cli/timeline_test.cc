#include "tools/cli/timeline.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/proto_time.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Times in milliseconds.
v1::StageSpan Span(int64_t step, const std::string& stage, const std::vector<std::string>& pools, int64_t begin,
                   int64_t end, bool beside = false) {
  v1::StageSpan span;
  span.set_step(step);
  span.set_op(stage);
  span.set_stage(stage);
  for (const std::string& pool : pools) span.add_pools(pool);
  span.set_beside(beside);
  *span.mutable_begin_time() = ToTimestamp(absl::FromUnixMillis(1'000'000 + begin));
  *span.mutable_end_time() = ToTimestamp(absl::FromUnixMillis(1'000'000 + end));
  return span;
}

// In the order in which they ended: steps from 1000 to 2000.
std::vector<v1::StageSpan> OneStepOff() {
  return {Span(0, "initialize", {"train", "answer"}, 0, 900),
          Span(0, "infer_batch", {"train", "answer"}, 900, 1000),
          Span(1, "generate", {"answer"}, 1000, 1300),
          Span(1, "reward", {"answer"}, 1300, 1400, true),
          Span(2, "generate", {"answer"}, 1300, 1600),
          Span(1, "update", {"train"}, 1400, 1700),
          Span(1, "weight_sync", {"train", "answer"}, 1700, 1750),
          Span(2, "update", {"train"}, 1750, 2000),
          Span(2, "save_checkpoint", {"train"}, 2000, 2500)};
}

TEST(TimelineTest, SharesAreOfTheStepsAlone) {
  const TimelineSummary summary = Summarize(OneStepOff());
  EXPECT_EQ(summary.steps, 2);
  EXPECT_EQ(summary.length, absl::Seconds(1));
  EXPECT_EQ(summary.at_once, absl::Milliseconds(200)) << "update 1 beside generate 2; the reward is on no device";
  ASSERT_EQ(summary.rows.size(), 3);
  EXPECT_EQ(summary.rows[0].pool, "answer");
  EXPECT_EQ(summary.rows[0].busy, absl::Milliseconds(650));
  EXPECT_EQ(summary.rows[1].pool, "train");
  EXPECT_EQ(summary.rows[1].busy, absl::Milliseconds(600));
  EXPECT_THAT(summary.rows[1].stages,
              ElementsAre(Pair("update", absl::Milliseconds(550)), Pair("weight_sync", absl::Milliseconds(50))));
  EXPECT_TRUE(summary.rows[2].beside);
  EXPECT_EQ(summary.rows[2].busy, absl::Milliseconds(100));
}

TEST(TimelineTest, ValidationsAndCheckpointsBetweenStepsCount) {
  const TimelineSummary summary =
      Summarize({Span(1, "train_batch", {"all"}, 0, 100), Span(1, "infer_batch", {"all"}, 100, 150),
                 Span(1, "save_checkpoint", {"all"}, 150, 180), Span(2, "train_batch", {"all"}, 200, 300),
                 Span(0, "export_weights", {"all"}, 300, 900)});
  EXPECT_EQ(summary.length, absl::Milliseconds(300));
  ASSERT_EQ(summary.rows.size(), 1);
  EXPECT_EQ(summary.rows[0].busy, absl::Milliseconds(280));
  EXPECT_EQ(summary.at_once, absl::ZeroDuration());
}

TEST(TimelineTest, IsATableForPeople) {
  EXPECT_EQ(FormatTimeline(Summarize(OneStepOff())),
            "2 steps in 1.000 s; two stages or more on devices at once: 20.0 % of it\n"
            "POOL            BUSY    WITH\n"
            "answer          65.0 %  generate 60.0 %, weight_sync 5.0 %\n"
            "train           60.0 %  update 55.0 %, weight_sync 5.0 %\n"
            "answer, beside  10.0 %  reward 10.0 %\n");
  EXPECT_EQ(FormatTimeline(Summarize({})), "no step has ended yet\n");
  EXPECT_EQ(FormatTimeline(Summarize({Span(0, "initialize", {"all"}, 0, 1)})), "no step has ended yet\n");
}

TEST(TimelineTest, IsAnObjectForPrograms) {
  const auto json = nlohmann::json::parse(TimelineJson(Summarize(OneStepOff())));
  EXPECT_EQ(json["steps"], 2);
  EXPECT_DOUBLE_EQ(json["two_at_once_seconds"], 0.2);
  EXPECT_EQ(json["pools"][2]["pool"], "answer");
  EXPECT_EQ(json["pools"][2]["beside"], true);
  EXPECT_DOUBLE_EQ(json["pools"][1]["stage_seconds"]["update"], 0.55);
}

TEST(TimelineTest, TheTraceHasARowForEachPoolAndOneForWhatRunsBeside) {
  const auto trace = nlohmann::json::parse(TraceJson(OneStepOff(), "job-1 run"));
  std::map<int, std::string> rows;
  std::vector<std::string> slices;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "thread_name") rows[event["tid"]] = event["args"]["name"];
    if (event["ph"] != "X" || event["args"]["step"] != 1) continue;
    slices.push_back(rows[event["tid"]] + ": " + event["name"].get<std::string>() + " from " +
                     std::to_string(event["ts"].get<int64_t>()) + " us for " +
                     std::to_string(event["dur"].get<int64_t>()));
  }
  EXPECT_THAT(rows, ElementsAre(Pair(0, "answer"), Pair(1, "train"), Pair(2, "answer, beside")));
  EXPECT_THAT(
      slices,
      ElementsAre("answer: generate from 1000000 us for 300000", "answer, beside: reward from 1300000 us for 100000",
                  "train: update from 1400000 us for 300000", "train: weight_sync from 1700000 us for 50000",
                  "answer: weight_sync from 1700000 us for 50000"));
  EXPECT_EQ(trace["traceEvents"][0]["args"]["name"], "job-1 run");
  EXPECT_EQ(trace["otherData"]["begin_time"], "1970-01-01T00:16:40+00:00");
}

}  // namespace
}  // namespace sluice::cli
