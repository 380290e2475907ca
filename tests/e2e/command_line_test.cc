// Commands that need no controller: plan, config, generate, version, help.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

TEST(CommandLineTest, GeneratesSamplesIntoAFile) {
  const TinyJob job;
  ASSERT_EQ(job.Run("made").exit_code, 0);
  const std::string prompts =
      job.Write("prompts.jsonl", "{\"prompt\": \"What is 3 and 9?\"}\n\n{\"prompt\": \"Hello\", \"id\": 7}\n");
  const auto generate = [&](const std::string& seed, const std::string& to) {
    const CommandResult run =
        RunSluice({"generate", job.Path("made/huggingface"), "--prompts", prompts, "-n", "2", "--max-new-tokens", "8",
                   "--temperature", "0.9", "--top-k", "50", "--seed", seed, "--ignore-eos", "--output", job.Path(to)});
    EXPECT_EQ(run.exit_code, 0) << run.errors;
    std::vector<nlohmann::json> rows;
    std::ifstream in(job.Path(to));
    for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  };
  const std::vector<nlohmann::json> rows = generate("3", "answers.jsonl");
  ASSERT_EQ(rows.size(), 4u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["prompt"], i < 2 ? "What is 3 and 9?" : "Hello");
    EXPECT_EQ(rows[i]["sample"], i % 2);
    EXPECT_EQ(rows[i]["finish_reason"], "length");
    EXPECT_EQ(rows[i]["token_ids"].size(), 8u);
    EXPECT_EQ(rows[i]["log_probs"].size(), 8u);
    EXPECT_LT(rows[i]["log_probs"][0], 0.0);
  }
  EXPECT_NE(rows[0]["token_ids"], rows[1]["token_ids"]);
  EXPECT_EQ(generate("3", "again.jsonl"), rows);
  EXPECT_NE(generate("4", "other.jsonl"), rows);

  const std::string bad = job.Write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
  const CommandResult no_prompt = RunSluice({"generate", job.Path("made/huggingface"), "--prompts", bad});
  EXPECT_EQ(no_prompt.exit_code, 2);
  EXPECT_THAT(no_prompt.errors, HasSubstr("bad.jsonl:2: has no text under `prompt`"));
  const CommandResult top_p = RunSluice({"generate", job.Path("made/huggingface"), "-p", "x", "--top-p", "1.5"});
  EXPECT_EQ(top_p.exit_code, 2);
  EXPECT_THAT(top_p.errors, HasSubstr("top_p is 1.5"));
}

TEST(CommandLineTest, ExplainsItself) {
  EXPECT_THAT(RunSluice({"version"}).output, HasSubstr("sluice 0."));
  const CommandResult help = RunSluice({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command :
       {"run", "submit", "get", "list", "watch", "logs", "cancel", "plan", "config", "generate", "timeline", "version"}) {
    EXPECT_THAT(help.output, HasSubstr(command));
  }
  EXPECT_EQ(RunSluice({"fly"}).exit_code, 2);
  EXPECT_EQ(RunSluice({}).exit_code, 2);
  EXPECT_EQ(RunSluice({"run", "x.yaml", "--dry-run"}).exit_code, 2);
}

}  // namespace
}  // namespace sluice::testing
