// What must hold of a job's pools. Pure; part of ValidateJobSpec (validate.h).
#pragma once

#include <vector>

#include "common/config/config_error.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// Every rule about `pools`, rollout.mode, and batches that divide by the ranks of each pool, for jobs of reinforcement
// learning.
void AddPoolErrors(const v1::JobSpec& spec, std::vector<ConfigError>* errors);

}  // namespace sluice
