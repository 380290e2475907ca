// From a job's specification to the options of the engine's parts: the only place that knows both.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/dataset.h"
#include "engine/model/causal_lm.h"
#include "engine/model/model_config.h"
#include "engine/optim/adamw_optimizer.h"
#include "kernels/device.h"
#include "kernels/dtype.h"
#include "sluice/v1/job.pb.h"

namespace sluice::engine {

// The device of this process's rank. Each rank sees one GPU: the worker hides the others. CheckGpu's error: `cuda` is
// asked for and there is no usable GPU (gpu_check.h). `auto` logs why it is the CPU.
absl::StatusOr<kernels::Device> ChooseDevice(const std::string& device);

kernels::DType DTypeOf(const v1::EngineSpec& engine);

CausalLmOptions ModelOptions(const v1::JobSpec& spec);

AdamWOptimizerOptions OptimizerOptions(const v1::JobSpec& spec);

// Sets how matrix products choose their algorithm (kernels/matmul/gemm_tuning.h), for the whole process. The file of
// choices is `gemm.txt` in the folder of the tokenised cache, which is made.
absl::Status ApplyGemmTuning(const v1::JobSpec& spec, kernels::Device device);

// For the training files, and for the validation files: those in order, every row once, many rows a step, which only
// serves the packing. InvalidArgument: no folder for the cache can be found.
absl::StatusOr<DatasetOptions> TrainDatasetOptions(const v1::JobSpec& spec);
absl::StatusOr<DatasetOptions> ValidationDatasetOptions(const v1::JobSpec& spec);

// model.override_config as JSON; empty where it is not given.
absl::StatusOr<std::string> OverrideJson(const v1::ModelSpec& model);

// What model.path, or model.hf_config_path, says of the model that is trained, with model.override_config; of recipe
// reward_model with its value head. Errors begin with `model: `.
absl::StatusOr<ModelConfig> TrainedModelConfig(const v1::JobSpec& spec);

// The folders that config.json and tokenizer.json are read from.
std::string ConfigFolder(const v1::ModelSpec& model);
std::string TokenizerFolder(const v1::ModelSpec& model);

// metrics.jsonl in trainer.default_local_dir.
std::string MetricsPath(const v1::TrainerSpec& trainer);

}  // namespace sluice::engine
