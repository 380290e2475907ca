// The weights that a job's model begins with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/parameters.h"
#include "sluice/v1/job.pb.h"

namespace sluice::engine {

// Drawn from options.seed where model.init is `random`, else read from model.path; what was odd there is told in
// `warnings`. Errors of reading begin with `key`, the configuration key of the path.
absl::StatusOr<std::unique_ptr<Parameters>> OpenParameters(const v1::ModelSpec& model, const std::string& key,
                                                           const ModelConfig& config, const ParametersOptions& options,
                                                           std::vector<std::string>& warnings);

// Options for the job's storage type, device and seed.
ParametersOptions ParametersOptionsOf(const v1::JobSpec& spec, kernels::Device device, bool gradients);

}  // namespace sluice::engine
