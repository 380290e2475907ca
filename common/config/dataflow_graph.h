// What must hold of the stages of a data flow as a graph. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/config/config_error.h"
#include "common/config/dataflow.h"

namespace sluice {

// What is wrong with the stages, whoever listed them: two of one name or op, an input that is not there or
// that the op cannot read, a cycle, a model that does not suit the op, results that nobody reads. `path` is what
// messages call the list; the paths of its elements are path[0], path[1], ...
std::vector<ConfigError> JudgeStages(const std::vector<DataflowStage>& stages, const std::string& path);

// Whether it can be the name of a stage, or of a pool.
bool IsStageName(const std::string& name);

// Whether the op follows the steps, and is no part of them.
bool FollowsSteps(const std::string& op);

}  // namespace sluice
