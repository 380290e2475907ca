// sluice: the command line.

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "common/build_info.h"
#include "common/grpc_channel.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"

int main(int argc, char** argv) {
  using sluice::cli::Format;
  sluice::QuietGrpcLogs();
  CLI::App app("Sluice post-trains language models. A first job: sluice run configs/sft_smollm2_quickstart.yaml");
  app.name("sluice");
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(
      "Exit codes: 0 done, 1 the job failed, 2 wrong arguments or input (nothing was run), 3 not found, 4 no answer.");
  sluice::cli::GlobalOptions global;
  app.add_option("--controller", global.controller, "Address of the controller: host:port or unix:path")
      ->envname("SLUICE_CONTROLLER")
      ->capture_default_str();
  const std::map<std::string, Format> formats = {
      {"table", Format::kTable}, {"json", Format::kJson}, {"yaml", Format::kYaml}};
  app.add_option("-o,--output", global.format, "How results are printed: table, json or yaml")
      ->transform(CLI::CheckedTransformer(formats, CLI::ignore_case).description(""));
  app.set_version_flag("--version", sluice::BuildVersion());

  sluice::cli::Action action;
  sluice::cli::AddRunCommand(app, global, action);
  sluice::cli::AddSubmitCommand(app, global, action);
  sluice::cli::AddJobCommands(app, global, action);
  sluice::cli::AddPlanCommand(app, global, action);
  sluice::cli::AddConfigCommand(app, action);
  sluice::cli::AddEvalCommand(app, global, action);
  sluice::cli::AddGenerateCommand(app, global, action);
  sluice::cli::AddReplayCommand(app, global, action);
  sluice::cli::AddTimelineCommand(app, global, action);
  sluice::cli::AddVersionCommand(app, global, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? sluice::cli::kOk : sluice::cli::kUsage;
  }
  return action();
}
