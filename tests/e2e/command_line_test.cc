// Commands that need no controller: plan, config, generate, version, help.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/tiny_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

CommandResult WithJob(const TinyJob& job, const std::string& command, const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> arguments = job.Arguments("run", overrides);
  arguments.insert(arguments.begin(), command);
  return RunSluice(arguments);
}

TEST(CommandLineTest, PlansWithTheRealNumbers) {
  const TinyJob job;
  const CommandResult plan = WithJob(job, "plan", {"-o", "json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.errors;
  const nlohmann::json numbers = nlohmann::json::parse(plan.output);
  EXPECT_THAT(plan.output, HasSubstr("\"steps_per_epoch\": 4"));
  EXPECT_THAT(plan.output, HasSubstr("\"total_steps\": 8"));
  EXPECT_FALSE(job.Exists("run"));
  EXPECT_EQ(WithJob(job, "plan").exit_code, 0);
}

TEST(CommandLineTest, ConfigRoundTrips) {
  const TinyJob job;
  const CommandResult full = WithJob(job, "config", {"optim.lr=0.125"});
  ASSERT_EQ(full.exit_code, 0) << full.errors;
  EXPECT_THAT(full.output, HasSubstr("lr: 0.125"));
  job.Write("full.yaml", full.output);
  EXPECT_EQ(RunSluice({"config", job.Path("full.yaml")}).output, full.output);
  EXPECT_THAT(RunSluice({"config", "--defaults"}).output, HasSubstr("lr_warmup_steps"));
  EXPECT_EQ(RunSluice({"config"}).exit_code, 2);
}

TEST(CommandLineTest, GeneratesFromAnExportedModel) {
  const TinyJob job;
  ASSERT_EQ(job.Run("made").exit_code, 0);
  const CommandResult answer = RunSluice(
      {"generate", job.Path("made/huggingface"), "-p", "What is 3 and 9?", "--max-new-tokens", "8", "-o", "json"});
  ASSERT_EQ(answer.exit_code, 0) << answer.errors;
  const nlohmann::json completions = nlohmann::json::parse(answer.output)["completions"];
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_FALSE(completions[0]["token_ids"].empty());
  EXPECT_EQ(RunSluice({"generate", job.Path("made/huggingface")}).exit_code, 2) << "no prompt";
  EXPECT_EQ(RunSluice({"generate", "/no/such/model", "-p", "x"}).exit_code, 2);
}

TEST(CommandLineTest, ExplainsItself) {
  EXPECT_THAT(RunSluice({"version"}).output, HasSubstr("sluice 0."));
  const CommandResult help = RunSluice({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command :
       {"run", "submit", "get", "list", "watch", "logs", "cancel", "plan", "config", "generate", "version"}) {
    EXPECT_THAT(help.output, HasSubstr(command));
  }
  EXPECT_EQ(RunSluice({"fly"}).exit_code, 2);
  EXPECT_EQ(RunSluice({}).exit_code, 2);
  EXPECT_EQ(RunSluice({"run", "x.yaml", "--dry-run"}).exit_code, 2);
}

}  // namespace
}  // namespace sluice::testing
