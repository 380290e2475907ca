// A job of reinforcement learning that takes a second: the tiny random model answers with eight tokens, and what it
// answers is judged by a pattern.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/e2e/tiny_job.h"

namespace sluice::testing {

class PolicyJob {
 public:
  // 8 prompts, 4 a step with 4 answers each.
  PolicyJob();

  // `sluice run` with these overrides; the run's folder is Path(run).
  CommandResult Run(const std::string& run, const std::vector<std::string>& overrides = {},
                    const Environment& environment = {}) const;

  std::string Path(const std::string& name) const { return tiny_.Path(name); }
  std::string Write(const std::string& name, const std::string& contents) const { return tiny_.Write(name, contents); }
  std::string Contents(const std::string& name) const { return tiny_.Contents(name); }

  // The weights that a run ended with, as bytes.
  std::string Weights(const std::string& run) const { return Contents(run + "/huggingface/model.safetensors"); }

  // The numbers of each step, and of each validation, of a run, in their order.
  std::vector<std::map<std::string, double>> Steps(const std::string& run) const;
  std::vector<std::map<std::string, double>> Validations(const std::string& run) const;

 private:
  TinyJob tiny_;  // its model, and its folder
};

// Python: two of the eight prompts give equal numbers `acc`, whatever is answered.
inline constexpr char kSomeFlat[] = R"(
def compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs):
    flat = extra_info["index"] % 4 == 0
    return {"score": float(sum(map(ord, solution_str)) % 97), "acc": 1.0 if flat else float(len(solution_str) % 7)}
)";

// `overrides` and `more` after them.
std::vector<std::string> With(std::vector<std::string> overrides, const std::vector<std::string>& more);

// Overrides for so many ranks that train and a pool of so many others that answers.
std::vector<std::string> Pools(int train, int answer);

// Expects all numbers of the steps of two runs to be the same, but times, memory and what only pools have.
void ExpectSameSteps(const PolicyJob& job, const std::string& one, const std::string& other);

}  // namespace sluice::testing
