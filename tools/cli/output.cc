#include "tools/cli/output.h"

#include <google/protobuf/util/json_util.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/proto_time.h"
#include "tools/cli/progress_text.h"

namespace sluice::cli {
namespace {

std::string Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  // Messages of our own API always have a JSON form.
  static_cast<void>(google::protobuf::util::MessageToJsonString(message, &json, options));
  return json;
}

void SetBlockStyle(YAML::Node node) {
  node.SetStyle(YAML::EmitterStyle::Block);
  if (node.IsMap()) {
    for (auto entry : node) SetBlockStyle(entry.second);
  } else if (node.IsSequence()) {
    for (auto entry : node) SetBlockStyle(entry);
  }
}

std::string Ago(const google::protobuf::Timestamp& timestamp, absl::Time now) {
  return timestamp.seconds() == 0 ? "-" : ShortDuration(now - FromTimestamp(timestamp));
}

std::string Steps(const v1::Progress& progress) {
  return progress.total_steps() == 0 ? "-" : absl::StrCat(progress.step(), "/", progress.total_steps());
}

}  // namespace

std::string ToJson(const google::protobuf::Message& message) { return Json(message) + "\n"; }

std::string ToYaml(const google::protobuf::Message& message) {
  YAML::Node node = YAML::Load(Json(message));
  SetBlockStyle(node);
  return YAML::Dump(node) + "\n";
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      absl::StrAppend(&line, row[i], std::string(widths[i] - row[i].size() + 2, ' '));
    absl::StrAppend(&table, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return table;
}

std::string StateName(v1::JobState state) {
  return std::string(absl::StripPrefix(v1::JobState_Name(state), "JOB_STATE_"));
}

std::string ShortDuration(absl::Duration duration) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(duration));
  if (seconds < 60) return absl::StrFormat("%ds", seconds);
  if (seconds < 3600) return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  if (seconds < 86400) return absl::StrFormat("%dh%02dm", seconds / 3600, seconds % 3600 / 60);
  return absl::StrFormat("%dd%02dh", seconds / 86400, seconds % 86400 / 3600);
}

std::string FormatJobs(const std::vector<v1::Job>& jobs, absl::Time now) {
  std::vector<std::vector<std::string>> rows = {{"JOB", "NAME", "STATE", "STEP", "LOSS", "ATTEMPT", "AGE", "MESSAGE"}};
  for (const v1::Job& job : jobs) {
    const std::string loss =
        job.progress().has_last_step() ? absl::StrFormat("%.4f", job.progress().last_step().loss()) : "-";
    rows.push_back({job.job_id(), job.spec().name(), StateName(job.state()), Steps(job.progress()), loss,
                    absl::StrCat(job.attempt()), Ago(job.create_time(), now), job.status_message()});
  }
  return FormatTable(rows);
}

std::string FormatJob(const v1::Job& job, absl::Time now) {
  std::vector<std::vector<std::string>> rows = {{"job", job.job_id()},
                                                {"name", job.spec().name()},
                                                {"state", StateName(job.state())},
                                                {"message", job.status_message()},
                                                {"attempt", absl::StrCat(job.attempt())},
                                                {"age", Ago(job.create_time(), now)},
                                                {"step", Steps(job.progress())}};
  const v1::Progress& progress = job.progress();
  if (progress.has_last_step()) rows.push_back({"train loss", absl::StrFormat("%.4f", progress.last_step().loss())});
  if (progress.has_first_val_loss())
    rows.push_back({"first validation loss", absl::StrFormat("%.4f", progress.first_val_loss())});
  if (progress.has_last_val_loss())
    rows.push_back({"last validation loss", absl::StrFormat("%.4f", progress.last_val_loss())});
  if (progress.has_first_val_score())
    rows.push_back({"first validation score", absl::StrFormat("%.4f", progress.first_val_score())});
  if (progress.has_last_val_score())
    rows.push_back({"last validation score", absl::StrFormat("%.4f", progress.last_val_score())});
  if (progress.has_best_checkpoint_step()) rows.push_back({"best checkpoint", BestCheckpointText(job)});
  if (progress.has_eta_seconds() && job.end_time().seconds() == 0) {
    rows.push_back({"time left", ShortDuration(absl::Seconds(progress.eta_seconds()))});
  }
  if (!job.output_path().empty()) rows.push_back({"model", job.output_path()});
  if (job.has_failure()) {
    rows.push_back(
        {"failure", std::string(absl::StripPrefix(v1::FailureReason_Name(job.failure().reason()), "FAILURE_REASON_"))});
    rows.push_back({"cause", job.failure().message()});
  }
  return FormatTable(rows);
}

std::string FormatWorkers(const v1::ListWorkersResponse& workers, absl::Time now) {
  std::vector<std::vector<std::string>> rows = {{"WORKER", "STATE", "DEVICE", "RANKS", "JOBS", "HEARTBEAT", "ADDRESS"}};
  for (const v1::Worker& worker : workers.workers()) {
    rows.push_back(
        {worker.worker_id(), std::string(absl::StripPrefix(v1::WorkerState_Name(worker.state()), "WORKER_STATE_")),
         worker.resources().device(), absl::StrCat(worker.ranks_used(), "/", worker.resources().rank_slots()),
         worker.job_ids().empty() ? "-" : absl::StrJoin(worker.job_ids(), ","),
         absl::StrCat(Ago(worker.last_heartbeat_time(), now), " ago"), worker.address()});
  }
  return FormatTable(rows);
}

}  // namespace sluice::cli
