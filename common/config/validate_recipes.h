// The rules of ValidateJobSpec that are about single kinds of recipes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/config/config_error.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// Stands for the length of a run where it is not known: long enough for every rule that is about length.
inline constexpr int64_t kLongRun = int64_t{1} << 50;

// Adds every rule across keys of reinforcement learning and preference tuning that is broken. `total_steps`: of the
// run, where they are known.
void AddRecipeErrors(const v1::JobSpec& spec, std::optional<int64_t> total_steps, std::vector<ConfigError>* errors);

}  // namespace sluice
