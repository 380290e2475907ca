// sluice timeline: when the stages of a job ran, on which pool, and how busy that kept it.

#include <cstdio>
#include <memory>
#include <vector>

#include "tools/cli/client.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/timeline.h"
#include "tools/cli/trace_file.h"

namespace sluice::cli {
namespace {

struct TimelineOptions {
  std::string job_id;
  std::string trace_file;
};

int Run(const TimelineOptions& options, const GlobalOptions& global) {
  auto trace = TraceFile::Create(options.trace_file);
  if (!trace.ok()) return ReportError(trace.status());
  std::vector<v1::StageSpan> spans;
  const auto job = Client(global.controller).History(options.job_id, [&](const v1::JobEvent& event) {
    spans.insert(spans.end(), event.spans().begin(), event.spans().end());
  });
  if (!job.ok()) return ReportError(job.status());
  const TimelineSummary summary = Summarize(spans);
  const std::string text =
      global.format == Format::kTable ? FormatTimeline(summary) : TimelineJson(summary);  // JSON is YAML
  std::fputs(text.c_str(), stdout);
  const absl::Status written = trace->Write(spans, *job);
  return written.ok() ? kOk : ReportError(written);
}

}  // namespace

void AddTimelineCommand(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto* command = app.add_subcommand("timeline", "Show when a job's stages ran, and how busy each pool was");
  auto options = std::make_shared<TimelineOptions>();
  command->add_option("job", options->job_id, "The job's id")->required();
  command->add_option("--trace", options->trace_file,
                      "Write the stages there too, for ui.perfetto.dev or chrome://tracing");
  command->callback([options, &global, &action] { action = [options, &global] { return Run(*options, global); }; });
}

}  // namespace sluice::cli
