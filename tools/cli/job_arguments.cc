#include "tools/cli/job_arguments.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/config/file_checks.h"
#include "common/config/job_reader.h"
#include "common/status_macros.h"

namespace sluice::cli {

void AddJobArguments(CLI::App* command, JobArguments* arguments) {
  command->add_option("job", arguments->file, "The job file (YAML)")->required();
  command->add_option("overrides", arguments->overrides,
                      "key=value: values that win over the file, such as optim.lr=3e-5");
}

absl::StatusOr<v1::JobSpec> LoadJobArguments(const JobArguments& arguments, bool check_files) {
  LoadOptions options;
  options.file = arguments.file;
  options.overrides = arguments.overrides;
  options.working_folder = std::filesystem::current_path().string();
  LoadResult result = LoadJob(options);
  if (result.errors.empty() && check_files) {
    for (const ConfigError& error : CheckFiles(result.spec, PosixFileSystem())) {
      result.errors.push_back(WithOrigin(error, result.origins));
    }
  }
  RETURN_IF_ERROR(ToStatus(result.errors));
  return result.spec;
}

void AddComputeArguments(CLI::App* command, ComputeArguments* arguments) {
  command->add_option("--device", arguments->device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
}

absl::StatusOr<v1::JobSpec> ModelOnlyJob(const std::string& model_folder, const ComputeArguments& compute) {
  if (!std::filesystem::is_regular_file(std::filesystem::path(model_folder) / "config.json")) {
    return absl::InvalidArgumentError(absl::StrCat(model_folder, " has no config.json (is it a Hugging Face folder?)"));
  }
  LoadOptions options;
  options.file = "command line";
  options.text = "{model: {path: .}, data: {train_files: [none.jsonl]}}";  // required keys; no data is read
  options.working_folder = std::filesystem::current_path().string();
  ASSIGN_OR_RETURN(v1::JobSpec spec, LoadJobSpec(options));
  spec.mutable_model()->set_path(std::filesystem::absolute(model_folder).string());
  spec.mutable_engine()->set_device(compute.device);
  spec.mutable_engine()->set_model_dtype(compute.dtype);
  spec.mutable_engine()->set_forward_only(true);
  spec.mutable_data()->set_max_token_len_per_gpu(2);  // no micro-batch is computed: the smallest buffers will do
  return spec;
}

}  // namespace sluice::cli
