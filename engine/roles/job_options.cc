#include "engine/roles/job_options.h"

#include <google/protobuf/util/json_util.h>
#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "common/config/preference.h"
#include "common/config/recipes.h"
#include "common/file_system.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/roles/gpu_check.h"
#include "kernels/matmul/gemm_tuning.h"

namespace sluice::engine {
namespace {

// Rows that are packed together for validation. More would pack a little better and take memory for nothing.
constexpr int64_t kValidationRowsPerStep = 1024;

kernels::DType DTypeNamed(const std::string& name) {
  return name == "bf16" ? kernels::DType::kBFloat16 : kernels::DType::kFloat32;
}

absl::StatusOr<DatasetOptions> CommonDatasetOptions(const v1::JobSpec& spec) {
  const v1::DataSpec& data = spec.data();
  DatasetOptions options;
  options.format.format = spec.recipe() == "pretrain" && data.format() == "auto" ? "text" : data.format();
  options.format.columns.messages = data.messages_key();
  options.format.columns.tools = data.tools_key();
  options.format.columns.enable_thinking = data.enable_thinking_key();
  options.format.columns.prompt = data.prompt_key();
  options.format.columns.response = data.response_key();
  options.format.columns.text = data.text_key();
  options.format.system_prompt = data.system_prompt();
  options.max_length = data.max_length();
  ASSIGN_OR_RETURN(options.truncation, ParseTruncation(data.truncation()));
  options.threads = data.num_workers();
  ASSIGN_OR_RETURN(options.cache_dir,
                   ResolveCacheDir(data.cache_dir(), [](const char* name) -> const char* { return getenv(name); }));
  options.max_tokens_per_micro_batch = data.max_token_len_per_gpu();
  options.seed = static_cast<uint64_t>(spec.trainer().seed());
  return options;
}

}  // namespace

absl::StatusOr<kernels::Device> ChooseDevice(const std::string& device) {
  if (device == "cpu") return kernels::Device::Cpu();
  const GpuFacts facts = ReadGpuFacts();
  const absl::Status usable = CheckGpu(facts);
  if (usable.ok()) return kernels::Device::Cuda(0);
  if (device == "auto") {
    // A machine without a GPU is meant; one with a GPU that is left idle probably is not.
    const std::string message = absl::StrCat("engine.device auto: computing on the CPU: ", usable.message());
    LoggerFor("engine").Log(facts.driver_version > 0 ? LogLevel::kWarning : LogLevel::kInfo, message);
    return kernels::Device::Cpu();
  }
  return absl::Status(usable.code(), absl::StrCat("engine.device: cuda is asked for, but ", usable.message(),
                                                  "; or use engine.device=cpu"));
}

kernels::DType DTypeOf(const v1::EngineSpec& engine) { return DTypeNamed(engine.model_dtype()); }

CausalLmOptions ModelOptions(const v1::JobSpec& spec) {
  const v1::EngineSpec& engine = spec.engine();
  CausalLmOptions options;
  options.token_slots = spec.data().max_token_len_per_gpu();
  options.backward = !engine.forward_only();
  options.recompute = engine.activation_checkpointing() == "none"   ? Recompute::kNone
                      : engine.activation_checkpointing() == "full" ? Recompute::kFull
                                                                    : Recompute::kSelective;
  options.ranks = int64_t{spec.trainer().nnodes()} * spec.trainer().n_gpus_per_node();
  options.deterministic = engine.full_determinism();
  options.cuda_graphs = engine.cuda_graphs();
  options.distillation = KindOfRecipe(spec.recipe()) == RecipeKind::kDistillation;
  return options;
}

absl::Status ApplyGemmTuning(const v1::JobSpec& spec, kernels::Device device) {
  kernels::GemmTuning tuning;
  tuning.enabled = device.is_cuda() && spec.engine().gemm_autotune() && !spec.engine().full_determinism();
  if (tuning.enabled) {
    ASSIGN_OR_RETURN(
        const std::string folder,
        ResolveCacheDir(spec.data().cache_dir(), [](const char* name) -> const char* { return getenv(name); }));
    RETURN_IF_ERROR(CreateFolderWithParents(PosixFileSystem(), folder));
    tuning.cache_file = folder + "/gemm.txt";
  }
  return kernels::SetGemmTuning(tuning);
}

AdamWOptimizerOptions OptimizerOptions(const v1::JobSpec& spec) {
  const v1::OptimSpec& optim = spec.optim();
  AdamWOptimizerOptions options;
  options.beta1 = optim.betas(0);
  options.beta2 = optim.betas(1);
  options.eps = optim.eps();
  options.clip_grad = optim.clip_grad();
  options.decay_all_parameters = optim.decay_all_parameters();
  options.master_weights = optim.master_weights();
  options.moments_dtype = DTypeNamed(optim.moments_dtype());
  options.seed = static_cast<uint64_t>(spec.trainer().seed());
  options.cuda_graphs = spec.engine().cuda_graphs();
  return options;
}

absl::StatusOr<DatasetOptions> TrainDatasetOptions(const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(DatasetOptions options, CommonDatasetOptions(spec));
  options.files.assign(spec.data().train_files().begin(), spec.data().train_files().end());
  options.files_key = "data.train_files";
  options.max_rows = spec.data().train_max_samples();
  options.batch_size = spec.data().train_batch_size();
  options.shuffle = spec.data().shuffle();
  return options;
}

absl::StatusOr<DatasetOptions> ValidationDatasetOptions(const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(DatasetOptions options, CommonDatasetOptions(spec));
  options.files.assign(spec.data().val_files().begin(), spec.data().val_files().end());
  options.files_key = "data.val_files";
  options.max_rows = spec.data().val_max_samples();
  options.batch_size = kValidationRowsPerStep;
  options.shuffle = false;
  return options;
}

absl::StatusOr<std::string> OverrideJson(const v1::ModelSpec& model) {
  if (model.override_config().fields().empty()) return std::string();
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(model.override_config(), &json);
  if (!status.ok())
    return absl::InvalidArgumentError(absl::StrCat("model.override_config: ", std::string(status.message())));
  return json;
}

absl::StatusOr<ModelConfig> TrainedModelConfig(const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(const std::string overrides, OverrideJson(spec.model()));
  const std::string folder = ConfigFolder(spec.model());
  auto config = TrainsRewardModel(spec) ? LoadValueModelConfig(folder, overrides) : LoadModelConfig(folder, overrides);
  RETURN_IF_ERROR(Annotate(config.status(), "model"));
  return config;
}

std::string ConfigFolder(const v1::ModelSpec& model) {
  return model.hf_config_path().empty() ? model.path() : model.hf_config_path();
}

std::string TokenizerFolder(const v1::ModelSpec& model) {
  return model.tokenizer_path().empty() ? model.path() : model.tokenizer_path();
}

std::string MetricsPath(const v1::TrainerSpec& trainer) { return trainer.default_local_dir() + "/metrics.jsonl"; }

}  // namespace sluice::engine
