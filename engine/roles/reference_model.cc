#include "engine/roles/reference_model.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/roles/job_options.h"
#include "engine/roles/open_parameters.h"
#include "engine/roles/same_tokens.h"

namespace sluice::engine {
namespace {

constexpr char kPath[] = "reference.path";

}  // namespace

absl::StatusOr<ModelConfig> ReferenceConfig(const v1::JobSpec& spec) {
  if (spec.reference().path().empty()) return TrainedModelConfig(spec);
  auto config = LoadModelConfig(spec.reference().path());
  RETURN_IF_ERROR(Annotate(config.status(), kPath));
  return config;
}

absl::StatusOr<ReferenceModel> OpenReferenceModel(const v1::JobSpec& spec, const ChatRowEncoder& encoder,
                                                  kernels::Device device, CausalLmOptions options) {
  const std::string& path = spec.reference().path();
  v1::ModelSpec model = spec.model();
  ASSIGN_OR_RETURN(const ModelConfig config, ReferenceConfig(spec));
  if (!path.empty()) {
    model.set_path(path);
    model.set_init("pretrained");
    RETURN_IF_ERROR(Annotate(CheckSameTokens(path, config, encoder.tokenizer()), kPath));
  }
  ReferenceModel reference;
  std::vector<std::string> warnings;
  ASSIGN_OR_RETURN(reference.parameters,
                   OpenParameters(model, path.empty() ? "model.path" : kPath, config,
                                  ParametersOptionsOf(spec, device, /*gradients=*/false), warnings));
  // Of model.path the trained model's loading gave the same.
  for (const std::string& warning : path.empty() ? std::vector<std::string>() : warnings) {
    LoggerFor("engine").Warning(absl::StrCat("reference: ", warning));
  }
  options.backward = false;
  options.distillation = false;
  ASSIGN_OR_RETURN(reference.model, CausalLm::Create(reference.parameters.get(), options));
  return reference;
}

}  // namespace sluice::engine
