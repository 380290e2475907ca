// What must hold of a job's own data flow. Pure; part of ValidateJobSpec (validate.h).
#pragma once

#include <string>
#include <vector>

#include "common/config/config_error.h"
#include "common/config/dataflow.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// What is wrong with the stages as a graph, whoever listed them: two of one name or op, an input that is not there or
// that the op cannot read, a cycle, a model that does not suit the op, results that nobody reads. `path` is what
// messages call the list; the paths of its elements are path[0], path[1], ...
std::vector<ConfigError> JudgeStages(const std::vector<DataflowStage>& stages, const std::string& path);

// Whether it can be the name of a stage, or of a pool.
bool IsStageName(const std::string& name);

// Every rule about `dataflow`, for jobs of reinforcement learning: the graph, stages that the keys ask for, options.
void AddDataflowErrors(const v1::JobSpec& spec, std::vector<ConfigError>* errors);

}  // namespace sluice
