// What must hold between the keys of a job before anything starts. Pure: no file is looked at (file_checks.h does).
//
// The CLI judges with what it knows before submitting, the controller judges every specification again, whoever sent
// it, and the engine once more when the rows are counted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/config/config_error.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// What the caller knows beyond the specification.
struct JobFacts {
  std::optional<int64_t> train_rows;  // rows in the training files, after filtering; before data.train_max_samples
};

// Every rule that is broken, with the key to change first: the table's bounds and choices of each key, then the rules
// across keys. Rules that need an absent fact are not judged.
std::vector<ConfigError> ValidateJobSpec(const v1::JobSpec& spec, const JobFacts& facts = {});

}  // namespace sluice
