#include "engine/roles/open_parameters.h"

#include "common/file_system.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/model_folder.h"
#include "engine/model/load_parameters.h"
#include "engine/roles/job_options.h"

namespace sluice::engine {

absl::StatusOr<std::unique_ptr<Parameters>> OpenParameters(const v1::ModelSpec& model, const std::string& key,
                                                           const ModelConfig& config, const ParametersOptions& options,
                                                           std::vector<std::string>& warnings) {
  if (model.init() == "random") return Parameters::CreateRandom(config, options, options.seed);
  auto folder = ModelFolder::Open(PosixFileSystem(), model.path());
  RETURN_IF_ERROR(Annotate(folder.status(), key));
  auto loaded = LoadParameters(config, options, *folder, warnings);
  RETURN_IF_ERROR(Annotate(loaded.status(), key));
  return loaded;
}

ParametersOptions ParametersOptionsOf(const v1::JobSpec& spec, kernels::Device device, bool gradients) {
  ParametersOptions options;
  options.dtype = DTypeOf(spec.engine());
  options.device = device;
  options.gradients = gradients;
  options.seed = static_cast<uint64_t>(spec.trainer().seed());
  return options;
}

}  // namespace sluice::engine
