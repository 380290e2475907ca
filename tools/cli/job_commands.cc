// sluice get, list, watch, logs, cancel, workers: looking at a controller's jobs.

#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tools/cli/client.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/job_view.h"

namespace sluice::cli {
namespace {

void Print(const std::string& text) { std::fputs(text.c_str(), stdout); }

// As `format` says: the message as JSON or YAML, or the table made by `table`.
template <typename MakeTable>
int PrintMessage(Format format, const google::protobuf::Message& message, MakeTable table) {
  switch (format) {
    case Format::kTable:
      Print(table());
      break;
    case Format::kJson:
      Print(ToJson(message));
      break;
    case Format::kYaml:
      Print(ToYaml(message));
      break;
  }
  return kOk;
}

int Get(const GlobalOptions& global, const std::string& job_id) {
  const auto job = Client(global.controller).Get(job_id);
  if (!job.ok()) return ReportError(job.status());
  return PrintMessage(global.format, *job, [&] { return FormatJob(*job, absl::Now()); });
}

struct ListOptions {
  std::vector<std::string> states;
  std::string name;
  int limit = 100;
};

int List(const GlobalOptions& global, const ListOptions& options) {
  v1::ListJobsRequest request;
  request.set_name_contains(options.name);
  for (const std::string& state : options.states) {
    v1::JobState parsed;
    if (!v1::JobState_Parse(absl::StrCat("JOB_STATE_", absl::AsciiStrToUpper(state)), &parsed)) {
      return ReportError(absl::InvalidArgumentError(absl::StrCat("--state ", state, ": no such state")));
    }
    request.add_states(parsed);
  }
  Client client(global.controller);
  v1::ListJobsResponse all;
  do {
    request.set_page_size(options.limit - all.jobs_size());
    const auto page = client.List(request);
    if (!page.ok()) return ReportError(page.status());
    all.mutable_jobs()->MergeFrom(page->jobs());
    all.set_total_size(page->total_size());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty() && all.jobs_size() < options.limit);
  return PrintMessage(global.format, all, [&] {
    std::string table = FormatJobs({all.jobs().begin(), all.jobs().end()}, absl::Now());
    if (all.total_size() > all.jobs_size())
      absl::StrAppend(&table, "(", all.total_size() - all.jobs_size(), " more: --limit)\n");
    return table;
  });
}

int Watch(const GlobalOptions& global, const std::string& job_id) {
  JobView view(global.format);
  const auto job =
      Client(global.controller).Watch(job_id, 0, [&](const v1::WatchJobResponse& update) { view.Show(update); });
  if (!job.ok()) return ReportError(job.status());
  view.Finish(*job);
  return ExitCodeOf(*job);
}

int Logs(const GlobalOptions& global, const v1::GetJobLogsRequest& request) {
  const absl::Status status = Client(global.controller).Logs(request, [](const std::string& data) {
    std::fwrite(data.data(), 1, data.size(), stdout);
    std::fflush(stdout);
  });
  return status.ok() ? kOk : ReportError(status);
}

int Cancel(const GlobalOptions& global, const std::string& job_id, const std::string& reason) {
  const auto job = Client(global.controller).Cancel(job_id, reason);
  if (!job.ok()) return ReportError(job.status());
  return PrintMessage(global.format, *job, [&] { return absl::StrCat(job_id, " ", StateName(job->state()), "\n"); });
}

int Workers(const GlobalOptions& global) {
  const auto workers = Client(global.controller).Workers();
  if (!workers.ok()) return ReportError(workers.status());
  return PrintMessage(global.format, *workers, [&] { return FormatWorkers(*workers, absl::Now()); });
}

}  // namespace

void AddJobCommands(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto job_id = std::make_shared<std::string>();
  auto* get = app.add_subcommand("get", "Show a job");
  get->add_option("job", *job_id, "The job's id")->required();
  get->callback([=, &global, &action] { action = [=, &global] { return Get(global, *job_id); }; });

  auto list_options = std::make_shared<ListOptions>();
  auto* list = app.add_subcommand("list", "List jobs, newest first");
  list->add_option("--state", list_options->states, "Only these states, such as running (repeat for several)");
  list->add_option("--name", list_options->name, "Only names that contain this");
  list->add_option("--limit", list_options->limit, "At most this many")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  list->callback([=, &global, &action] { action = [=, &global] { return List(global, *list_options); }; });

  auto* watch = app.add_subcommand("watch", "Follow a job until it ends; the exit code is the job's");
  watch->add_option("job", *job_id, "The job's id")->required();
  watch->callback([=, &global, &action] { action = [=, &global] { return Watch(global, *job_id); }; });

  auto request = std::make_shared<v1::GetJobLogsRequest>();
  auto rank = std::make_shared<int>(0);
  auto attempt = std::make_shared<int>(0);
  auto follow = std::make_shared<bool>(false);
  auto* logs = app.add_subcommand("logs", "Print what a rank of a job wrote");
  logs->add_option("job", *job_id, "The job's id")->required();
  logs->add_flag("-f,--follow", *follow, "Go on until the job ends");
  logs->add_option("--rank", *rank, "The rank")->capture_default_str();
  logs->add_option("--attempt", *attempt, "The attempt; 0: the newest")->capture_default_str();
  logs->callback([=, &global, &action] {
    action = [=, &global] {
      request->set_job_id(*job_id);
      request->set_rank(*rank);
      request->set_attempt(*attempt);
      request->set_follow(*follow);
      return Logs(global, *request);
    };
  });

  auto reason = std::make_shared<std::string>("cancelled from the command line");
  auto* cancel = app.add_subcommand("cancel", "End a job");
  cancel->add_option("job", *job_id, "The job's id")->required();
  cancel->add_option("--reason", *reason, "Why; shown with the job")->capture_default_str();
  cancel->callback([=, &global, &action] { action = [=, &global] { return Cancel(global, *job_id, *reason); }; });

  auto* workers = app.add_subcommand("workers", "List the workers");
  workers->callback([&global, &action] { action = [&global] { return Workers(global); }; });
}

}  // namespace sluice::cli
