#include "tests/e2e/policy_job.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice::testing {
namespace {

constexpr char kJob[] = R"(name: tiny-policy
recipe: grpo
data:
  max_prompt_length: 32
  max_response_length: 8
  train_batch_size: 4
  max_token_len_per_gpu: 96
engine: {device: cpu, cpu_threads: 1}
rollout: {n: 4}
reward: {kind: format, options: {pattern: "[aeiou]", mode: search}}
optim: {lr: 2e-3, lr_scheduler_type: constant, weight_decay: 0}
trainer: {total_training_steps: 3, save_freq: 1, seed: 7, export_hf_model: true}
)";

}  // namespace

PolicyJob::PolicyJob() {
  std::string prompts;
  for (int i = 0; i < 8; ++i) {
    prompts += nlohmann::json({{"prompt", "Say number " + std::to_string(i)},
                               {"data_source", i % 2 == 0 ? "even" : "odd"},
                               {"ground_truth", std::to_string(i)},
                               {"extra_info", {{"index", i}}}})
                   .dump() +
               "\n";
  }
  Write("prompts.jsonl", prompts);
  Write("policy.yaml", kJob);
}

CommandResult PolicyJob::Run(const std::string& run, const std::vector<std::string>& overrides,
                             const Environment& environment) const {
  std::vector<std::string> arguments = {"run", Path("policy.yaml"), "model={path: " + Path("model") + ", init: random}",
                                        "data.train_files=" + Path("prompts.jsonl"),
                                        "trainer.default_local_dir=" + Path(run)};
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  return RunSluice(arguments, environment);
}

std::vector<std::map<std::string, double>> PolicyJob::Steps(const std::string& run) const {
  return MetricLines(Contents(run + "/metrics.jsonl"), "train/loss");
}

std::vector<std::map<std::string, double>> PolicyJob::Validations(const std::string& run) const {
  return MetricLines(Contents(run + "/metrics.jsonl"), "val/score/mean");
}

std::vector<std::string> With(std::vector<std::string> overrides, const std::vector<std::string>& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

std::vector<std::string> Pools(int train, int answer) {
  return {"trainer.n_gpus_per_node=" + std::to_string(train + answer),
          "pools=[{pool: answer, ranks: " + std::to_string(answer) +
              ", roles: rollout}, {pool: train, ranks: " + std::to_string(train) + ", roles: actor}]"};
}

void ExpectSameSteps(const PolicyJob& job, const std::string& one, const std::string& other) {
  const auto first = job.Steps(one), second = job.Steps(other);
  ASSERT_FALSE(first.empty());
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    for (const auto& [name, value] : first[i]) {
      const bool of_machine = name.find("timing_s/") == 0 || name.find("perf/") == 0 || name.find("memory") == 0 ||
                              name.find("seconds") != std::string::npos || name.find("bytes") != std::string::npos;
      if (of_machine) continue;
      ASSERT_TRUE(second[i].contains(name)) << name;
      EXPECT_EQ(second[i].at(name), value) << name << " of step " << i + 1;
    }
  }
}

}  // namespace sluice::testing
