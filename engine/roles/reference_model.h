// The frozen model that a run compares its own with: the model as the run began with it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/model/causal_lm.h"
#include "engine/model/model_config.h"
#include "engine/model/parameters.h"
#include "kernels/device.h"
#include "sluice/v1/job.pb.h"

namespace sluice::engine {

struct ReferenceModel {
  std::unique_ptr<Parameters> parameters;  // without gradients
  std::unique_ptr<CausalLm> model;         // over them
};

// Reads model.path again, or draws the same random weights. `config` and `options` are those of the model that is
// trained; the reference has no backward. Errors name model.path.
absl::StatusOr<ReferenceModel> OpenReferenceModel(const v1::JobSpec& spec, const ModelConfig& config,
                                                  kernels::Device device, CausalLmOptions options);

}  // namespace sluice::engine
