// ModelRole: models as Hugging Face folders.

#include <map>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/model_folder_writer.h"
#include "engine/roles/job_options.h"
#include "engine/roles/model_role.h"

namespace sluice::engine {

absl::StatusOr<int64_t> ModelRole::WriteHuggingFaceFolders(const std::string& path) const {
  ASSIGN_OR_RETURN(int64_t total, WriteHuggingFaceFolder(*parameters_, path));
  for (const FurtherModel& further : FurtherModels()) {
    ASSIGN_OR_RETURN(const int64_t bytes,
                     WriteHuggingFaceFolder(*further.parameters, absl::StrCat(path, "_", further.name)));
    total += bytes;
  }
  return total;
}

absl::StatusOr<int64_t> ModelRole::WriteHuggingFaceFolder(const Parameters& parameters, const std::string& path) const {
  const std::string& wanted = spec_.checkpoint().export_dtype();
  const kernels::DType dtype = wanted == "fp32"   ? kernels::DType::kFloat32
                               : wanted == "bf16" ? kernels::DType::kBFloat16
                                                  : parameters.config().storage_dtype;
  ASSIGN_OR_RETURN(const HostTensors weights, parameters.ExportValues(dtype));
  std::vector<TensorSpec> specs;
  std::map<std::string, std::span<const std::byte>> bytes;
  int64_t total = 0;
  for (const TensorData& tensor : weights.tensors) {
    specs.push_back(tensor.spec);
    bytes[tensor.spec.name] = tensor.bytes;
    total += static_cast<int64_t>(tensor.bytes.size());
  }
  ModelFolderOptions options;
  options.max_shard_bytes = static_cast<int64_t>(spec_.checkpoint().max_shard_size_gb() * 1e9);
  options.companions_from = TokenizerFolder(spec_.model());
  options.replace = true;
  const TensorSource source = [&](const TensorSpec& spec) -> absl::StatusOr<std::span<const std::byte>> {
    return bytes[spec.name];
  };
  RETURN_IF_ERROR(
      WriteModelFolder(PosixFileSystem(), path, ExportConfigJson(parameters.config(), dtype), specs, source, options));
  return total;
}

absl::StatusOr<v1::ExportWeightsResult> ModelRole::ExportWeights(const v1::ExportWeightsOp& op) {
  RETURN_IF_ERROR(RequireLoaded());
  absl::StatusOr<int64_t> bytes = 0;
  if (options_.rank == 0) bytes = WriteHuggingFaceFolders(op.path());
  RETURN_IF_ERROR(communicator_->Agree(Annotate(bytes.status(), absl::StrCat("export to ", op.path()))));
  v1::ExportWeightsResult result;
  result.set_path(op.path());
  result.set_bytes(*bytes);
  return result;
}

}  // namespace sluice::engine
