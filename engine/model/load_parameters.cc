#include "engine/model/load_parameters.h"

#include "common/status.h"
#include "common/status_macros.h"

namespace sluice::engine {

absl::StatusOr<std::unique_ptr<Parameters>> LoadParameters(const ModelConfig& config, const ParametersOptions& options,
                                                           const ModelFolder& folder,
                                                           std::vector<std::string>& warnings) {
  warnings.insert(warnings.end(), folder.notes().begin(), folder.notes().end());
  std::vector<TensorData> tensors;
  for (const std::string& name : folder.TensorNames()) {
    ASSIGN_OR_RETURN(tensors.emplace_back(), folder.Tensor(name));
  }
  auto parameters = Parameters::CreateFromTensors(config, options, tensors, warnings);
  if (!parameters.ok()) return Annotate(parameters.status(), folder.path());
  return parameters;
}

}  // namespace sluice::engine
