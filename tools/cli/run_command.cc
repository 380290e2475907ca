// sluice run: controller, worker and engines of one job in one command on one machine.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/logging.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/job_arguments.h"
#include "tools/cli/job_view.h"
#include "tools/cli/local_run.h"
#include "tools/cli/timeline.h"
#include "tools/cli/trace_file.h"

namespace sluice::cli {
namespace {

struct RunOptions {
  JobArguments job;
  bool dry_run = false;
  bool verbose = false;
  std::string trace_file;  // empty: none
  LocalRunOptions local;
};

int Run(const RunOptions& options, Format format) {
  auto spec = LoadJobArguments(options.job, /*check_files=*/true);
  if (!spec.ok()) return ReportError(spec.status());
  if (const absl::Status fits = CheckFitsThisHost(*spec); !fits.ok()) return ReportError(fits);
  if (options.dry_run) {
    std::printf("%s is valid\n", options.job.file.c_str());
    return kOk;
  }
  const bool traces = !options.trace_file.empty();
  auto trace = TraceFile::Create(options.trace_file);
  if (!trace.ok()) return ReportError(trace.status());
  // Before any thread starts, so that none of them takes the signals.
  BlockSignals();
  static_cast<void>(SetLogLevel(options.verbose ? "info" : "warning"));
  JobView view(format);
  std::vector<v1::StageSpan> spans;
  const auto on_update = [&](const std::string&, const v1::WatchJobResponse& update) {
    view.Show(update);
    if (traces) spans.insert(spans.end(), update.event().spans().begin(), update.event().spans().end());
  };
  const auto job = RunHere(*spec, options.local, on_update);
  if (!job.ok()) return ReportError(job.status());
  view.Finish(*job);
  if (traces && format == Format::kTable) {
    std::fputs(FormatTimeline(Summarize(spans)).c_str(), stdout);
  }
  if (const absl::Status written = trace->Write(spans, *job); !written.ok()) return ReportError(written);
  return ExitCodeOf(*job);
}

}  // namespace

void AddRunCommand(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto* command = app.add_subcommand("run", "Run a job here and now: controller, worker and engines in one command");
  auto options = std::make_shared<RunOptions>();
  AddJobArguments(command, &options->job);
  command->add_flag("--dry-run", options->dry_run, "Only check the job");
  command->add_flag("-v,--verbose", options->verbose, "Show what controller and worker log");
  command->add_option("--metrics", options->local.metrics_address,
                      "Serve /metrics there while the job runs, such as 127.0.0.1:9102");
  command->add_option("--trace", options->trace_file,
                      "Write there when each stage ran, for ui.perfetto.dev or chrome://tracing");
  command->add_option("--engine", options->local.engine_binary,
                      "The engine program (default: sluice-engine beside this one)");
  command->callback(
      [options, &global, &action] { action = [options, &global] { return Run(*options, global.format); }; });
}

}  // namespace sluice::cli
