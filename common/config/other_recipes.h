// Keys that a job gives and that its recipe does not read, because they are for recipes of another kind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/config/config_error.h"
#include "common/config/job_reader.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// One error for each key, and one for all keys of a section that is as a whole for other recipes; with the place of the
// first. Which keys are for which recipes is job.proto's option `only_for`. A key that is given its own default asks
// for nothing and is left alone, so that the text of `sluice config` is a job. `origins` are the keys that were given,
// as LoadJob collects them; keys that could not be read are judged as they are in `spec`. Nothing is said where the
// recipe is not known.
std::vector<ConfigError> KeysOfOtherRecipes(const v1::JobSpec& spec, const std::map<std::string, Origin>& origins);

}  // namespace sluice
