// sluice generate: answers of a model, greedy or sampled. And sluice version.

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/status.h"
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
  ComputeArguments compute;
  std::string output;
  int n = 1;
  double temperature = 0, top_p = 1, min_p = 0, repetition_penalty = 1;
  int64_t top_k = -1, seed = 0;
  int min_new_tokens = 0;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

// The prompt on one line of a .jsonl file.
absl::StatusOr<std::string> PromptOf(const std::string& line) {
  const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (row.is_discarded()) return absl::InvalidArgumentError("not JSON");
  if (!row.is_object() || !row.contains("prompt") || !row["prompt"].is_string())
    return absl::InvalidArgumentError("has no text under `prompt`");
  return row["prompt"].get<std::string>();
}

// A prompt a line: objects with `prompt` in a .jsonl file, else the lines as they are. Empty lines are passed over.
absl::Status ReadPrompts(const std::string& path, std::vector<std::string>& prompts) {
  std::ifstream in(path);
  if (!in) return absl::InvalidArgumentError(absl::StrCat("--prompts ", path, ": cannot be read"));
  const bool json_lines = absl::EndsWith(path, ".jsonl");
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    absl::StatusOr<std::string> prompt = json_lines ? PromptOf(line) : line;
    RETURN_IF_ERROR(Annotate(prompt.status(), absl::StrCat("--prompts ", path, ":", number)));
    prompts.push_back(*std::move(prompt));
  }
  return absl::OkStatus();
}

v1::SamplingOptions SamplingOf(const GenerateOptions& options) {
  v1::SamplingOptions sampling;
  sampling.set_temperature(options.temperature);
  sampling.set_top_k(options.top_k);
  sampling.set_top_p(options.top_p);
  sampling.set_min_p(options.min_p);
  sampling.set_repetition_penalty(options.repetition_penalty);
  sampling.set_seed(options.seed);
  sampling.set_min_new_tokens(options.min_new_tokens);
  sampling.set_ignore_eos(options.ignore_eos);
  for (const std::string& stop : options.stop) sampling.add_stop(stop);
  return sampling;
}

absl::StatusOr<v1::GenerateResult> Generate(const GenerateOptions& options, std::vector<std::string>& prompts) {
  prompts = options.prompts;
  if (!options.prompts_file.empty()) RETURN_IF_ERROR(ReadPrompts(options.prompts_file, prompts));
  if (prompts.empty()) return absl::InvalidArgumentError("give a prompt: --prompt TEXT or --prompts FILE");
  v1::StageRequest generate;
  for (const std::string& prompt : prompts) generate.mutable_generate()->add_prompts(prompt);
  generate.mutable_generate()->set_apply_chat_template(!options.raw);
  generate.mutable_generate()->set_max_new_tokens(options.max_new_tokens);
  generate.mutable_generate()->set_n(options.n);
  *generate.mutable_generate()->mutable_sampling() = SamplingOf(options);

  ASSIGN_OR_RETURN(const v1::JobSpec spec, ModelOnlyJob(options.model, options.compute));
  ASSIGN_OR_RETURN(const auto engine, EngineChild::Start());
  v1::StageRequest initialize;
  *initialize.mutable_initialize()->mutable_spec() = spec;
  initialize.mutable_initialize()->set_world_size(1);
  initialize.mutable_initialize()->set_scope(v1::INITIALIZE_SCOPE_MODEL);
  RETURN_IF_ERROR(engine->Run(initialize).status());
  ASSIGN_OR_RETURN(const v1::StageResponse response, engine->Run(generate));
  return response.generate();
}

// One object a line: prompt, sample (0 .. n - 1), text, finish_reason, token_ids, log_probs.
absl::Status WriteJsonLines(const std::string& path, const std::vector<std::string>& prompts, int n,
                            const v1::GenerateResult& result) {
  std::ofstream out(path, std::ios::trunc);
  for (int i = 0; i < result.completions_size(); ++i) {
    const v1::Completion& completion = result.completions(i);
    const nlohmann::ordered_json row = {{"prompt", prompts[static_cast<size_t>(i / n)]},
                                        {"sample", i % n},
                                        {"text", completion.text()},
                                        {"finish_reason", completion.finish_reason()},
                                        {"token_ids", completion.token_ids()},
                                        {"log_probs", completion.log_probs()}};
    out << row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  }
  out.flush();
  if (!out) return absl::InvalidArgumentError(absl::StrCat("--output ", path, ": cannot be written"));
  return absl::OkStatus();
}

int Run(const GenerateOptions& options, Format format) {
  std::vector<std::string> prompts;
  const auto result = Generate(options, prompts);
  // A folder that is not there is wrong input, not a job that was not found.
  if (!result.ok())
    return absl::IsNotFound(result.status()) ? (ReportError(result.status()), kUsage) : ReportError(result.status());
  if (!options.output.empty()) {
    const absl::Status written = WriteJsonLines(options.output, prompts, options.n, *result);
    return written.ok() ? kOk : ReportError(written);
  }
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

// Ranges are the engine's to check: it names the key.
void AddSamplingOptions(CLI::App& command, const std::shared_ptr<GenerateOptions>& options) {
  command.add_option("--temperature", options->temperature, "0: the most likely token each time")
      ->capture_default_str();
  command.add_option("--top-k", options->top_k, "Of the k most probable tokens; -1: of all")->capture_default_str();
  command.add_option("--top-p", options->top_p, "Of the most probable that hold this much")->capture_default_str();
  command.add_option("--min-p", options->min_p, "Of those at least so probable, as a part of the most probable")
      ->capture_default_str();
  command.add_option("--repetition-penalty", options->repetition_penalty, "On tokens of prompt and answer; 1: none")
      ->capture_default_str();
  command.add_option("--seed", options->seed, "Of the random numbers")->capture_default_str();
  command.add_option("--stop", options->stop, "A text that ends the answer (repeat for several)")
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--min-new-tokens", options->min_new_tokens, "Fewest tokens of an answer")->capture_default_str();
  command.add_flag("--ignore-eos", options->ignore_eos, "Go on after the end of the text");
}

}  // namespace

void AddGenerateCommand(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto* command = app.add_subcommand("generate", "Answers of a model folder, greedy or sampled");
  auto options = std::make_shared<GenerateOptions>();
  command->add_option("model", options->model, "Folder in Hugging Face layout")->required();
  command->add_option("-p,--prompt", options->prompts, "A user's turn (repeat for several)");
  command->add_option("--prompts", options->prompts_file,
                      "A file with a prompt a line: texts, or in a .jsonl file objects with `prompt`");
  command->add_option("--output", options->output, "A file for the answers, one JSON object a line");
  command->add_option("-n,--samples", options->n, "Answers to each prompt")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  AddSamplingOptions(*command, options);
  command->add_option("--max-new-tokens", options->max_new_tokens, "Most tokens of an answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--raw", options->raw, "Continue the prompts as they are, without the chat template");
  AddComputeArguments(command, &options->compute);
  command->callback(
      [options, &global, &action] { action = [options, &global] { return Run(*options, global.format); }; });
}

void AddVersionCommand(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto* command = app.add_subcommand("version", "Print the version, and the controller's where one answers");
  command->callback([&global, &action] { action = [&global] { return Version(global); }; });
}

}  // namespace sluice::cli
