#include "engine/roles/metrics_log.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<nlohmann::json> Lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<int64_t> Steps(const std::string& path) {
  std::vector<int64_t> steps;
  for (const auto& line : Lines(path)) steps.push_back(line["step"]);
  return steps;
}

void WriteSteps(const std::string& path, int64_t steps_done, int64_t last) {
  ASSERT_OK_AND_ASSIGN(auto log, MetricsLog::Open(path, steps_done));
  if (steps_done == 0) {
    v1::ValidationMetrics before;
    before.set_loss(3);
    ASSERT_OK(log->Write(before));
  }
  for (int64_t i = steps_done + 1; i <= last; ++i) {
    v1::StepMetrics step;
    step.set_step(i);
    step.set_loss(1.0 / static_cast<double>(i));
    ASSERT_OK(log->Write(step));
  }
}

TEST(MetricsLogTest, AResumedRunGoesOnWhereItsCheckpointWas) {
  testing::TempDir dir;
  const std::string path = dir.Join("run/metrics.jsonl");
  WriteSteps(path, 0, 5);
  WriteSteps(path, 3, 4);
  EXPECT_THAT(Steps(path), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(Lines(path)[2]["train/loss"], 0.5);
}

TEST(MetricsLogTest, AValidationHasALossOnlyWhereItIsGiven) {
  testing::TempDir dir;
  const std::string path = dir.Join("metrics.jsonl");
  ASSERT_OK_AND_ASSIGN(auto log, MetricsLog::Open(path, 0));
  v1::ValidationMetrics validation;
  validation.set_loss(0.5);
  (*validation.mutable_metrics())["val/rewards/margins"] = 2;
  ASSERT_OK(log->Write(validation));
  validation.clear_loss();  // with or without a score
  validation.clear_metrics();
  ASSERT_OK(log->Write(validation));
  const auto lines = Lines(path);
  EXPECT_EQ(lines[0]["val/loss"], 0.5);
  EXPECT_EQ(lines[0]["val/rewards/margins"], 2);
  EXPECT_FALSE(lines[1].contains("val/loss"));
}

TEST(MetricsLogTest, ALineCutByACrashIsDropped) {
  testing::TempDir dir;
  const std::string path = dir.Write("metrics.jsonl", "{\"step\":1}\n{\"step\":2,\"train/lo");
  WriteSteps(path, 1, 2);
  EXPECT_THAT(Steps(path), ElementsAre(1, 2));
}

TEST(MetricsLogTest, AFreshRunKeepsTheFormerHistoryAside) {
  testing::TempDir dir;
  const std::string path = dir.Join("metrics.jsonl");
  WriteSteps(path, 0, 2);
  WriteSteps(path, 0, 1);
  EXPECT_THAT(Steps(path), ElementsAre(0, 1));
  EXPECT_THAT(Steps(path + ".previous"), ElementsAre(0, 1, 2));
}

TEST(MetricsLogTest, NotANumberIsNull) {
  testing::TempDir dir;
  const std::string path = dir.Join("metrics.jsonl");
  ASSERT_OK_AND_ASSIGN(auto log, MetricsLog::Open(path, 0));
  v1::StepMetrics step;
  step.set_step(1);
  step.set_loss(std::numeric_limits<double>::quiet_NaN());
  step.set_grad_norm(std::numeric_limits<double>::infinity());
  ASSERT_OK(log->Write(step));
  EXPECT_TRUE(Lines(path)[0]["train/loss"].is_null());
  EXPECT_TRUE(Lines(path)[0]["train/grad_norm"].is_null());
}

TEST(MetricsLogTest, AFolderThatCannotBeWrittenIsAnError) {
  testing::TempDir dir;
  dir.Write("file", "");
  EXPECT_THAT(MetricsLog::Open(dir.Join("file/metrics.jsonl"), 0),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("file/metrics.jsonl")));
}

}  // namespace
}  // namespace sluice::engine
