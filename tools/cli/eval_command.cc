// sluice eval: how well a model's answers to a file of prompts score.

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/config/job_reader.h"
#include "common/status_macros.h"
#include "tools/cli/commands.h"
#include "tools/cli/engine_child.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/job_arguments.h"

namespace sluice::cli {
namespace {

struct EvalOptions {
  std::string model;
  std::vector<std::string> files;
  std::vector<std::string> overrides;
  int64_t samples = 1;
  double temperature = 0;
  int64_t max_prompt_length = 1024, max_new_tokens = 512, max_rows = -1;
  ComputeArguments compute;
};

// An evaluation is the validation of a job of reinforcement learning that does not train.
absl::StatusOr<v1::JobSpec> EvaluationJob(const EvalOptions& options) {
  std::string files;
  for (const std::string& file : options.files) {
    absl::StrAppend(&files, files.empty() ? "" : ", ", nlohmann::json(std::filesystem::absolute(file).string()).dump());
  }
  LoadOptions load;
  load.file = "command line";
  load.text = absl::StrCat("{recipe: grpo, engine: {forward_only: true}, data: {train_files: [", files,
                           "], val_files: [", files, "]}}");
  load.working_folder = std::filesystem::current_path().string();
  load.overrides = {
      absl::StrCat("model.path=", nlohmann::json(std::filesystem::absolute(options.model).string()).dump()),
      absl::StrCat("engine.device=", options.compute.device),
      absl::StrCat("engine.model_dtype=", options.compute.dtype),
      absl::StrCat("data.max_prompt_length=", options.max_prompt_length),
      absl::StrCat("data.max_response_length=", options.max_new_tokens),
      absl::StrCat("data.max_token_len_per_gpu=", options.max_prompt_length + options.max_new_tokens),
      absl::StrCat("data.val_max_samples=", options.max_rows),
      "data.filter_overlong_prompts=true",
      absl::StrCat("rollout.val_kwargs.n=", options.samples),
      absl::StrCat("rollout.val_kwargs.temperature=", options.temperature)};
  load.overrides.insert(load.overrides.end(), options.overrides.begin(), options.overrides.end());
  return LoadJobSpec(load);
}

absl::StatusOr<v1::ValidationMetrics> Evaluate(const EvalOptions& options, v1::InitializeResult* loaded) {
  ASSIGN_OR_RETURN(const v1::JobSpec spec, EvaluationJob(options));
  ASSIGN_OR_RETURN(const auto engine, EngineChild::Start());
  v1::StageRequest initialize;
  *initialize.mutable_initialize()->mutable_spec() = spec;
  initialize.mutable_initialize()->set_world_size(1);
  ASSIGN_OR_RETURN(v1::StageResponse response, engine->Run(initialize));
  *loaded = response.initialize();
  v1::StageRequest evaluate;
  evaluate.mutable_infer_batch();
  ASSIGN_OR_RETURN(response, engine->Run(evaluate));
  return response.infer_batch();
}

int Run(const EvalOptions& options, Format format) {
  v1::InitializeResult loaded;
  const auto result = Evaluate(options, &loaded);
  if (!result.ok())
    return absl::IsNotFound(result.status()) ? (ReportError(result.status()), kUsage) : ReportError(result.status());
  if (format != Format::kTable) {
    std::fputs((format == Format::kJson ? ToJson(*result) : ToYaml(*result)).c_str(), stdout);
    return kOk;
  }
  std::printf("%lld answers to %lld prompts, %.1f s\n", static_cast<long long>(result->samples()),
              static_cast<long long>(loaded.val_rows()), result->seconds());
  for (const auto& [name, value] : std::map<std::string, double>(result->metrics().begin(), result->metrics().end())) {
    std::printf("  %-36s %.4f\n", name.substr(name.find('/') + 1).c_str(), value);
  }
  return kOk;
}

}  // namespace

void AddEvalCommand(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto* command = app.add_subcommand("eval", "Answer prompts with a model folder and score the answers");
  auto options = std::make_shared<EvalOptions>();
  command->add_option("model", options->model, "Folder in Hugging Face layout")->required();
  command->add_option("--data", options->files, "Prompts as for reinforcement learning: .jsonl or .parquet, and globs")
      ->required()
      ->take_all()
      ->allow_extra_args(false);
  command
      ->add_option("--set", options->overrides, "key=value of a job file, such as reward.kind=gsm8k (repeat for more)")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("-n,--samples", options->samples, "Answers to each prompt; more than one need --temperature")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--temperature", options->temperature, "0: the most likely token each time")
      ->capture_default_str();
  command->add_option("--max-prompt-length", options->max_prompt_length, "Longer prompts are left out")
      ->capture_default_str();
  command->add_option("--max-new-tokens", options->max_new_tokens, "Most tokens of an answer")->capture_default_str();
  command->add_option("--max-rows", options->max_rows, "The first so many rows; -1: all")->capture_default_str();
  AddComputeArguments(command, &options->compute);
  command->callback(
      [options, &global, &action] { action = [options, &global] { return Run(*options, global.format); }; });
}

}  // namespace sluice::cli
