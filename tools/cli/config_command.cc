// sluice config: the keys of a job file, and a job file with everything filled in.

#include <cstdio>
#include <memory>

#include "common/config/config_document.h"
#include "common/config/yaml_writer.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/job_arguments.h"

namespace sluice::cli {
namespace {

struct ConfigOptions {
  JobArguments job;
  bool defaults = false;
  bool markdown = false;
  bool rewards = false;
};

int Run(const ConfigOptions& options) {
  if (options.defaults) {
    std::fputs(DefaultsText().c_str(), stdout);
    return kOk;
  }
  if (options.markdown) {
    std::fputs(ConfigMarkdown().c_str(), stdout);
    return kOk;
  }
  if (options.rewards) {
    std::fputs(RewardsMarkdown().c_str(), stdout);
    return kOk;
  }
  if (options.job.file.empty()) {
    return ReportError(absl::InvalidArgumentError("config needs a job file, --defaults, --markdown or --rewards"));
  }
  const auto spec = LoadJobArguments(options.job, /*check_files=*/false);
  if (!spec.ok()) return ReportError(spec.status());
  std::fputs(WriteJobSpec(*spec).c_str(), stdout);
  return kOk;
}

}  // namespace

void AddConfigCommand(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("config", "Print a job file with every default filled in, or all keys with their meaning");
  auto options = std::make_shared<ConfigOptions>();
  AddJobArguments(command, &options->job);
  command->get_option("job")->required(false);
  command->add_flag("--defaults", options->defaults, "Print every key with its type, default and meaning");
  command->add_flag("--markdown", options->markdown, "Print docs/config.md");
  command->add_flag("--rewards", options->rewards, "Print docs/rewards.md: the rewards and their options");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace sluice::cli
