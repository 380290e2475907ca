// A job of preference tuning that takes a second: the tiny random model learns which of two short answers is better.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/e2e/tiny_job.h"

namespace sluice::testing {

class PreferenceJob {
 public:
  // pairs.jsonl: 20 pairs; val_pairs.jsonl: 6 with other prompts. labelled.jsonl and val_labelled.jsonl: the same
  // answers, each by itself with a label. 6 rows a step, so that an epoch's last step has fewer.
  PreferenceJob();

  // `sluice run` of this recipe on its kind of rows, with these overrides; the run's folder is Path(run).
  CommandResult Run(const std::string& recipe, const std::string& run, const std::vector<std::string>& overrides = {},
                    const Environment& environment = {}) const;
  // The job file, model and data of that recipe, as arguments.
  std::vector<std::string> Arguments(const std::string& recipe) const;

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
