#include "engine/roles/reference_model.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/model_folder.h"
#include "engine/model/load_parameters.h"
#include "engine/roles/job_options.h"

namespace sluice::engine {

absl::StatusOr<ReferenceModel> OpenReferenceModel(const v1::JobSpec& spec, const ModelConfig& config,
                                                  kernels::Device device, CausalLmOptions options) {
  ReferenceModel reference;
  ParametersOptions parameters;
  parameters.dtype = DTypeOf(spec.engine());
  parameters.device = device;
  parameters.gradients = false;
  if (spec.model().init() == "random") {
    ASSIGN_OR_RETURN(reference.parameters,
                     Parameters::CreateRandom(config, parameters, static_cast<uint64_t>(spec.trainer().seed())));
  } else {
    auto folder = ModelFolder::Open(PosixFileSystem(), spec.model().path());
    RETURN_IF_ERROR(Annotate(folder.status(), "model.path"));
    std::vector<std::string> warnings;  // the trained model's loading gave the same
    auto loaded = LoadParameters(config, parameters, *folder, warnings);
    RETURN_IF_ERROR(Annotate(loaded.status(), "model.path"));
    reference.parameters = *std::move(loaded);
  }
  options.backward = false;
  ASSIGN_OR_RETURN(reference.model, CausalLm::Create(reference.parameters.get(), options));
  return reference;
}

}  // namespace sluice::engine
