// The frozen model that a run compares its own with: the model as the run began with it, or another.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/data/chat_row_encoder.h"
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

// The configuration of that model: reference.path's, else that of the model that is trained. Errors name the key.
absl::StatusOr<ModelConfig> ReferenceConfig(const v1::JobSpec& spec);

// reference.path, or model.path again, or the same random weights. `encoder` and `options` are those of the model that
// is trained; the reference has no backward. Errors name the key; InvalidArgument: reference.path has other tokens.
absl::StatusOr<ReferenceModel> OpenReferenceModel(const v1::JobSpec& spec, const ChatRowEncoder& encoder,
                                                  kernels::Device device, CausalLmOptions options);

}  // namespace sluice::engine
