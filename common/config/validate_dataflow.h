// What must hold of a job's own data flow. Pure; part of ValidateJobSpec (validate.h).
#pragma once

#include <vector>

#include "common/config/config_error.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// Every rule about `dataflow`, for jobs of reinforcement learning: the graph, stages that the keys ask for, options.
void AddDataflowErrors(const v1::JobSpec& spec, std::vector<ConfigError>* errors);

}  // namespace sluice
