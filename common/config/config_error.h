// One thing that is wrong with a job file, an override or a job specification, and where.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

struct ConfigError {
  std::string source;  // "job.yaml" or "override optim.lr=x"; empty where the value has no text behind it
  int line = 0;        // 1-based line in `source`; 0: unknown
  std::string path;    // "optim.lr", "data.train_files[1]"; empty: the document as a whole
  std::string message;
  std::vector<std::string> also_involves;  // other keys that the broken rule reads
};

// "job.yaml:12: optim.lr: expected a number, got \"abc\"".
std::string ToString(const ConfigError& error);

// OK for no errors; else InvalidArgument with one line per error, in the order given.
absl::Status ToStatus(const std::vector<ConfigError>& errors);

}  // namespace sluice
