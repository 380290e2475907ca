// sluice submit: gives a job to a controller.

#include <cstdio>
#include <memory>

#include "common/config/validate.h"
#include "common/ids.h"
#include "tools/cli/client.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/job_arguments.h"
#include "tools/cli/job_view.h"

namespace sluice::cli {
namespace {

struct SubmitOptions {
  JobArguments job;
  bool wait = false;
  bool dry_run = false;
  std::string request_id;
};

int Submit(const SubmitOptions& options, const GlobalOptions& global) {
  // Paths are the workers' to resolve: files of this machine prove nothing.
  const auto spec = LoadJobArguments(options.job, /*check_files=*/false);
  if (!spec.ok()) return ReportError(spec.status());
  Client client(global.controller);
  v1::SubmitJobRequest request;
  request.set_request_id(options.request_id.empty() ? NewUniqueId("submit-") : options.request_id);
  *request.mutable_spec() = *spec;
  request.set_validate_only(options.dry_run);
  const auto submitted = client.Submit(request);
  if (!submitted.ok()) return ReportError(submitted.status());
  if (options.dry_run) {
    std::printf("%s is valid\n", options.job.file.c_str());
    return kOk;
  }
  if (!options.wait) {
    if (global.format == Format::kTable) {
      std::printf("%s\n", submitted->job().job_id().c_str());
    } else {
      std::fputs((global.format == Format::kJson ? ToJson(submitted->job()) : ToYaml(submitted->job())).c_str(),
                 stdout);
    }
    return kOk;
  }
  JobView view(global.format);
  const auto job =
      client.Watch(submitted->job().job_id(), 0, [&](const v1::WatchJobResponse& update) { view.Show(update); });
  if (!job.ok()) return ReportError(job.status());
  view.Finish(*job);
  return ExitCodeOf(*job);
}

}  // namespace

void AddSubmitCommand(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto* command = app.add_subcommand("submit", "Give a job to a controller; prints its id");
  auto options = std::make_shared<SubmitOptions>();
  AddJobArguments(command, &options->job);
  command->add_flag("--wait", options->wait, "Watch the job until it ends; the exit code is the job's");
  command->add_flag("--dry-run", options->dry_run, "Let the controller check the job, store nothing");
  command->add_option("--request-id", options->request_id,
                      "One id is one job for ever: repeating a call with it is safe");
  command->callback([options, &global, &action] { action = [options, &global] { return Submit(*options, global); }; });
}

}  // namespace sluice::cli
