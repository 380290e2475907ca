// The parameters of a model folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/model_folder.h"
#include "engine/model/parameters.h"

namespace sluice::engine {

// Parameters::CreateFromTensors over all tensors of an open folder, which every rank reads through its own mapping.
// `config` is usually ParseModelConfig(folder.config_json(), overrides). `warnings` also receives folder.notes().
// Errors name the folder.
absl::StatusOr<std::unique_ptr<Parameters>> LoadParameters(const ModelConfig& config, const ParametersOptions& options,
                                                           const ModelFolder& folder,
                                                           std::vector<std::string>& warnings);

}  // namespace sluice::engine
