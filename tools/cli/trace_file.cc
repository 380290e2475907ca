#include "tools/cli/trace_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/cli/timeline.h"

namespace sluice::cli {

TraceFile::TraceFile(const std::string& path, std::ofstream out) : path_(path), out_(std::move(out)) {}

absl::StatusOr<TraceFile> TraceFile::Create(const std::string& path) {
  std::ofstream out;
  if (!path.empty()) out.open(path, std::ios::trunc);
  if (out) return TraceFile(path, std::move(out));
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
}

absl::Status TraceFile::Write(const std::vector<v1::StageSpan>& spans, const v1::Job& job) {
  if (path_.empty()) return absl::OkStatus();
  out_ << TraceJson(spans, absl::StrCat(job.job_id(), " ", job.spec().name())) << std::flush;
  if (out_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path_, ": ", std::strerror(errno)));
}

}  // namespace sluice::cli
