// sluice replay: computes a step of a run again, from the checkpoint before it, and says whether it is the same.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "common/temporary_folder.h"
#include "tools/cli/client.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/job_arguments.h"
#include "tools/cli/job_view.h"
#include "tools/cli/local_run.h"
#include "tools/cli/replay_compare.h"

namespace sluice::cli {
namespace {

struct ReplayOptions {
  JobArguments file;
  std::string job;
  int64_t step = 0;
};

struct Replay {
  int64_t step = 0, from = 0;
  StepNumbers recorded, again;
  bool has_weights = false;  // the run has a checkpoint of this step
  std::map<std::string, std::string> recorded_weights, weights_again;
};

std::string CheckpointFolder(const std::string& folder, int64_t step) {
  return absl::StrCat(folder, "/global_step_", step);
}

std::string TextOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  if (in) text << in.rdbuf();
  return text.str();
}

// Steps of the committed checkpoints in `folder`.
std::vector<int64_t> CheckpointsIn(const std::string& folder) {
  constexpr char kPrefix[] = "global_step_";
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (name.rfind(kPrefix, 0) != 0 || !absl::SimpleAtoi(name.substr(sizeof(kPrefix) - 1), &step)) continue;
    if (std::filesystem::exists(entry.path() / "manifest.json", error)) steps.push_back(step);
  }
  return steps;
}

absl::StatusOr<v1::JobSpec> SpecOf(const ReplayOptions& options, const GlobalOptions& global) {
  if (options.file.file.empty() == options.job.empty()) {
    return absl::InvalidArgumentError("give the job: its file (with the overrides it ran with), or --job JOB");
  }
  if (options.job.empty()) return LoadJobArguments(options.file, /*check_files=*/true);
  Client client(global.controller);
  ASSIGN_OR_RETURN(const v1::Job job, client.Get(options.job));
  return job.spec();
}

// The run again, in `folder`, from the checkpoint of step `from` to that of step `step`.
v1::JobSpec SpecOfReplay(v1::JobSpec spec, int64_t from, int64_t step, const std::string& folder) {
  v1::TrainerSpec* trainer = spec.mutable_trainer();
  trainer->set_resume_mode(from > 0 ? "resume_path" : "disable");
  trainer->set_resume_from_path(from > 0 ? CheckpointFolder(trainer->default_local_dir(), from) : "");
  trainer->set_default_local_dir(folder);
  trainer->set_save_freq(absl::StrCat(step));
  trainer->set_export_hf_model(false);
  trainer->set_max_restarts(0);
  trainer->clear_max_ckpt_to_keep();
  trainer->clear_rollout_data_dir();  // what the run kept stays
  // Validations change nothing of a step.
  trainer->set_test_freq("-1");
  spec.mutable_data()->clear_val_files();
  spec.mutable_checkpoint()->clear_best_metric();
  spec.mutable_checkpoint()->set_best_mode("auto");
  spec.mutable_checkpoint()->clear_save_contents();
  for (const char* part : {"model", "optimizer", "extra"}) spec.mutable_checkpoint()->add_save_contents(part);
  return spec;
}

absl::StatusOr<Replay> RunReplay(const v1::JobSpec& spec, int64_t step) {
  const std::string& run = spec.trainer().default_local_dir();
  Replay replay;
  replay.step = step;
  replay.from = CheckpointBefore(CheckpointsIn(run), step);
  const auto recorded = NumbersOfStep(TextOf(run + "/metrics.jsonl"), step);
  if (!recorded.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--step ", step, ": ", run, "/metrics.jsonl has no numbers of that step"));
  }
  replay.recorded = *recorded;
  if (const std::string manifest = TextOf(CheckpointFolder(run, step) + "/manifest.json"); !manifest.empty()) {
    auto checksums = TensorChecksums(manifest);
    RETURN_IF_ERROR(Annotate(checksums.status(), CheckpointFolder(run, step) + "/manifest.json"));
    replay.has_weights = true;
    replay.recorded_weights = *std::move(checksums);
  }

  ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Create("sluice-replay-"));
  const v1::JobSpec again = SpecOfReplay(spec, replay.from, step, folder.path());
  RETURN_IF_ERROR(CheckFitsThisHost(again));
  const auto on_update = [&](const std::string& controller, const v1::WatchJobResponse& update) {
    if (update.event().checkpoint_step() != step || update.job().progress().total_steps() == step) return;
    // That was the last thing of interest.
    static_cast<void>(Client(controller).Cancel(update.job().job_id(), "the step was replayed"));
  };
  ASSIGN_OR_RETURN(const v1::Job job, RunHere(again, LocalRunOptions(), on_update));
  const auto numbers = NumbersOfStep(TextOf(folder.path() + "/metrics.jsonl"), step);
  const std::string manifest = TextOf(CheckpointFolder(folder.path(), step) + "/manifest.json");
  if (!numbers.has_value() || manifest.empty()) {
    const std::string& why = job.has_failure() ? job.failure().message() : job.status_message();
    return absl::AbortedError(absl::StrCat("the step was not reached again: ", why));
  }
  replay.again = *numbers;
  auto checksums = TensorChecksums(manifest);
  RETURN_IF_ERROR(checksums.status());
  replay.weights_again = *std::move(checksums);
  return replay;
}

void Print(const Replay& replay, const std::vector<Difference>& numbers, const std::vector<Difference>& weights,
           const v1::JobSpec& spec) {
  const std::string start = replay.from > 0 ? absl::StrCat("the checkpoint of step ", replay.from) : "the beginning";
  std::printf("step %lld again, from %s\n", static_cast<long long>(replay.step), start.c_str());
  for (const auto& list : {numbers, weights}) {
    for (const Difference& difference : list) {
      std::printf("  %-36s recorded %s, now %s\n", difference.name.c_str(), difference.recorded.c_str(),
                  difference.again.c_str());
    }
  }
  const char* const kept = replay.has_weights ? "" : " (the run has no checkpoint of this step: weights not compared)";
  if (numbers.empty() && weights.empty()) {
    std::printf("equal to the last bit: %zu numbers%s%s\n", replay.recorded.size(),
                replay.has_weights ? ", the weights and the optimizer's state" : "", kept);
    return;
  }
  std::printf("not equal: %zu of %zu numbers and %zu of %zu files differ%s\n", numbers.size(), replay.recorded.size(),
              weights.size(), replay.recorded_weights.size(), kept);
  if (spec.engine().device() != "cpu" && !spec.engine().full_determinism()) {
    std::printf("on a GPU that is to be expected unless the run has engine.full_determinism: true\n");
  }
}

int Run(const ReplayOptions& options, const GlobalOptions& global) {
  const auto spec = SpecOf(options, global);
  if (!spec.ok()) return ReportError(spec.status());
  BlockSignals();
  static_cast<void>(SetLogLevel("warning"));
  const auto replay = RunReplay(*spec, options.step);
  if (!replay.ok()) return ReportError(replay.status());
  const std::vector<Difference> numbers = Differences(replay->recorded, replay->again);
  std::vector<Difference> weights;
  if (replay->has_weights) weights = Differences(replay->recorded_weights, replay->weights_again);
  const bool equal = numbers.empty() && weights.empty();
  if (global.format == Format::kTable) {
    Print(*replay, numbers, weights, *spec);
  } else {
    nlohmann::ordered_json result = {{"step", replay->step},
                                     {"from_step", replay->from},
                                     {"equal", equal},
                                     {"weights_compared", replay->has_weights},
                                     {"differences", nlohmann::ordered_json::array()}};
    for (const auto& list : {numbers, weights}) {
      for (const Difference& difference : list) {
        result["differences"].push_back(
            {{"name", difference.name}, {"recorded", difference.recorded}, {"again", difference.again}});
      }
    }
    std::printf("%s\n", result.dump(global.format == Format::kJson ? -1 : 2).c_str());  // JSON is YAML
  }
  return equal ? kOk : kJobFailed;
}

}  // namespace

void AddReplayCommand(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto* command = app.add_subcommand(
      "replay", "Compute a step of a run again, from the checkpoint before it, and say whether it is the same");
  auto options = std::make_shared<ReplayOptions>();
  command->add_option("job", options->file.file, "The job file (YAML) of the run");
  command->add_option("overrides", options->file.overrides, "key=value: the overrides that the run was started with");
  command->add_option("--job", options->job, "In place of the file: a job of the controller, whose run folder is here");
  command->add_option("--step", options->step, "The step, from 1")->required()->check(CLI::Range(1, INT32_MAX));
  command->footer(
      "Compared are all numbers of the step in metrics.jsonl but times and memory and, where the run has a checkpoint "
      "of the step, the checksums of weights and optimizer. The replay's own checkpoint goes to a folder in TMPDIR and "
      "is removed. Exit code 1: not equal.");
  command->callback([options, &global, &action] { action = [options, &global] { return Run(*options, global); }; });
}

}  // namespace sluice::cli
