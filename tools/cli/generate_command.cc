// sluice generate: greedy answers of a model, to look at a result. And sluice version.

#include <cstdio>
#include <fstream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/status_macros.h"
#include "tools/cli/client.h"
#include "tools/cli/commands.h"
#include "tools/cli/engine_child.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/job_arguments.h"

namespace sluice::cli {
namespace {

struct GenerateOptions {
  std::string model;
  std::vector<std::string> prompts;
  std::string prompts_file;
  int max_new_tokens = 256;
  bool raw = false;
  std::string device = "auto";
  std::string dtype = "fp32";
};

absl::StatusOr<v1::GenerateResult> Generate(const GenerateOptions& options) {
  v1::StageRequest generate;
  for (const std::string& prompt : options.prompts) generate.mutable_generate()->add_prompts(prompt);
  if (!options.prompts_file.empty()) {
    std::ifstream in(options.prompts_file);
    if (!in) return absl::InvalidArgumentError(absl::StrCat("--prompts ", options.prompts_file, ": cannot be read"));
    for (std::string line; std::getline(in, line);) {
      if (!line.empty()) generate.mutable_generate()->add_prompts(line);
    }
  }
  if (generate.generate().prompts().empty())
    return absl::InvalidArgumentError("give a prompt: --prompt TEXT or --prompts FILE");
  generate.mutable_generate()->set_apply_chat_template(!options.raw);
  generate.mutable_generate()->set_max_new_tokens(options.max_new_tokens);

  ASSIGN_OR_RETURN(const v1::JobSpec spec, ModelOnlyJob(options.model, options.device, options.dtype));
  ASSIGN_OR_RETURN(const auto engine, EngineChild::Start());
  v1::StageRequest initialize;
  *initialize.mutable_initialize()->mutable_spec() = spec;
  initialize.mutable_initialize()->set_world_size(1);
  initialize.mutable_initialize()->set_scope(v1::INITIALIZE_SCOPE_MODEL);
  RETURN_IF_ERROR(engine->Run(initialize).status());
  ASSIGN_OR_RETURN(const v1::StageResponse response, engine->Run(generate));
  return response.generate();
}

int Run(const GenerateOptions& options, Format format) {
  const auto result = Generate(options);
  // A folder that is not there is wrong input, not a job that was not found.
  if (!result.ok())
    return absl::IsNotFound(result.status()) ? (ReportError(result.status()), kUsage) : ReportError(result.status());
  if (format != Format::kTable) {
    std::fputs((format == Format::kJson ? ToJson(*result) : ToYaml(*result)).c_str(), stdout);
    return kOk;
  }
  for (const v1::Completion& completion : result->completions()) std::printf("%s\n", completion.text().c_str());
  return kOk;
}

int Version(const GlobalOptions& global) {
  std::printf("sluice %s (%s)\n", BuildVersion(), BuildCommit());
  const auto server = Client(global.controller).ServerInfo();
  if (server.ok()) {
    std::printf("controller %s (%s) at %s\n", server->version().c_str(), server->commit().c_str(),
                global.controller.c_str());
  }
  return kOk;
}

}  // namespace

void AddGenerateCommand(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto* command = app.add_subcommand("generate", "Greedy answers of a model folder, to look at a result");
  auto options = std::make_shared<GenerateOptions>();
  command->add_option("model", options->model, "Folder in Hugging Face layout")->required();
  command->add_option("-p,--prompt", options->prompts, "A user's turn (repeat for several)");
  command->add_option("--prompts", options->prompts_file, "A file with a prompt a line");
  command->add_option("--max-new-tokens", options->max_new_tokens, "Most tokens of an answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--raw", options->raw, "Continue the prompts as they are, without the chat template");
  command->add_option("--device", options->device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command->callback(
      [options, &global, &action] { action = [options, &global] { return Run(*options, global.format); }; });
}

void AddVersionCommand(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto* command = app.add_subcommand("version", "Print the version, and the controller's where one answers");
  command->callback([&global, &action] { action = [&global] { return Version(global); }; });
}

}  // namespace sluice::cli
