// A job that trains in a second: a random two-layer model, a few dozen rows, one folder for all of it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/testing/temp_dir.h"
#include "tests/e2e/cli_runner.h"

namespace sluice::testing {

class TinyJob {
 public:
  // Writes model, data and job.yaml: 20 rows, 5 a step, two epochs of 4 steps; one row a micro-batch, so that each step
  // accumulates over 5 of them.
  TinyJob();

  std::string Path(const std::string& name) const { return dir_.Join(name); }
  std::string Write(const std::string& name, const std::string& contents) const { return dir_.Write(name, contents); }

  // `sluice run job.yaml` with these overrides; the run's folder is Path(run).
  CommandResult Run(const std::string& run, const std::vector<std::string>& overrides = {},
                    const Environment& environment = {}) const;

  // job.yaml, default_local_dir of the run and the overrides, as arguments.
  std::vector<std::string> Arguments(const std::string& run, const std::vector<std::string>& overrides) const;

  // Bytes of the file, or "" where there is none.
  std::string Contents(const std::string& name) const;
  bool Exists(const std::string& name) const;

 private:
  TempDir dir_;
};

// The numbers of each line of a run's metrics.jsonl that has `with_key`, in their order.
std::vector<std::map<std::string, double>> MetricLines(const std::string& metrics_jsonl, const std::string& with_key);

// `losses` of the steps in a run's metrics.jsonl, by step.
std::vector<double> StepLosses(const std::string& metrics_jsonl);

}  // namespace sluice::testing
