#include "engine/roles/reference_model.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "engine/roles/open_parameters.h"

namespace sluice::engine {

absl::StatusOr<ReferenceModel> OpenReferenceModel(const v1::JobSpec& spec, const ModelConfig& config,
                                                  kernels::Device device, CausalLmOptions options) {
  ReferenceModel reference;
  std::vector<std::string> warnings;  // the trained model's loading gave the same
  ASSIGN_OR_RETURN(reference.parameters,
                   OpenParameters(spec.model(), "model.path", config,
                                  ParametersOptionsOf(spec, device, /*gradients=*/false), warnings));
  options.backward = false;
  ASSIGN_OR_RETURN(reference.model, CausalLm::Create(reference.parameters.get(), options));
  return reference;
}

}  // namespace sluice::engine
