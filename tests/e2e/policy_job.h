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

  // The numbers of each step, and of each validation, of a run, in their order.
  std::vector<std::map<std::string, double>> Steps(const std::string& run) const;
  std::vector<std::map<std::string, double>> Validations(const std::string& run) const;

 private:
  TinyJob tiny_;  // its model, and its folder
};

}  // namespace sluice::testing
