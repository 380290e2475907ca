#include "engine/roles/metrics_log.h"

#include <errno.h>
#include <string.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN and no infinity.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// The entries of a map of the wire, which has no order, by name.
void AddSorted(const google::protobuf::Map<std::string, double>& numbers, const char* prefix, Json* line) {
  for (const auto& [name, value] : std::map<std::string, double>(numbers.begin(), numbers.end())) {
    (*line)[absl::StrCat(prefix, name)] = Number(value);
  }
}

absl::Status FileError(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": ", strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(message) : absl::UnavailableError(message);
}

// The lines that a run resumed after `steps_done` steps still stands by: whole lines with a step it has done.
std::string KeptLines(const std::string& contents, int64_t steps_done) {
  std::string kept;
  std::istringstream in(contents);
  for (std::string line; std::getline(in, line);) {
    const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object() || !parsed.contains("step") || !parsed["step"].is_number_integer()) continue;
    // The validation before the first step has step 0 and belongs to every run that did not start afresh.
    if (parsed["step"].get<int64_t>() <= steps_done && steps_done > 0) absl::StrAppend(&kept, line, "\n");
  }
  return kept;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsLog>> MetricsLog::Open(const std::string& path, int64_t steps_done) {
  std::string contents;
  {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    if (in) text << in.rdbuf();
    contents = text.str();
  }
  const std::string kept = KeptLines(contents, steps_done);
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  if (kept != contents) {
    // A fresh run in a folder that was used before keeps that run's history under another name.
    if (steps_done == 0) {
      std::filesystem::rename(path, path + ".previous", ignored);
    } else {
      const std::string rewritten = path + ".tmp";
      std::ofstream out(rewritten, std::ios::binary);
      out << kept;
      out.close();
      if (!out || rename(rewritten.c_str(), path.c_str()) != 0) return FileError(path, errno);
    }
  }
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return FileError(path, errno);
  return std::unique_ptr<MetricsLog>(new MetricsLog(path, file));
}

absl::Status MetricsLog::WriteLine(const std::string& line) {
  if (std::fputs((line + "\n").c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0)
    return FileError(path_, errno);
  return absl::OkStatus();
}

absl::Status MetricsLog::Write(const v1::StepMetrics& step) {
  Json line = {{"step", step.step()},
               {"epoch", step.epoch()},
               {"train/loss", Number(step.loss())},
               {"train/grad_norm", Number(step.grad_norm())},
               {"train/lr", step.lr()},
               {"train/weight_decay", step.weight_decay()},
               {"train/tokens", step.tokens()},
               {"train/scored_tokens", step.scored_tokens()},
               {"train/token_slots", step.token_slots()},
               {"train/samples", step.samples()},
               {"train/micro_batches", step.micro_batches()},
               {"train/skipped_nonfinite", step.skipped_nonfinite()},
               {"train/nonfinite_steps_total", step.nonfinite_steps_total()},
               {"perf/seconds", step.seconds()},
               {"perf/model_flops", step.model_flops()},
               {"perf/peak_host_bytes", step.peak_host_bytes()},
               {"perf/peak_device_bytes", step.peak_device_bytes()}};
  AddSorted(step.phase_seconds(), "timing_s/", &line);
  AddSorted(step.metrics(), "", &line);
  return WriteLine(line.dump());
}

absl::Status MetricsLog::Write(const v1::ValidationMetrics& validation) {
  Json line = {{"step", validation.step()}};
  if (validation.has_loss()) line["val/loss"] = Number(validation.loss());
  line["val/scored_tokens"] = validation.scored_tokens();
  line["val/samples"] = validation.samples();
  line["perf/seconds"] = validation.seconds();
  AddSorted(validation.metrics(), "", &line);
  return WriteLine(line.dump());
}

}  // namespace sluice::engine
