// metrics.jsonl in the run's folder: one JSON object a line for every optimizer step and validation.
//
//   {"step": 12, "epoch": 0, "train/loss": 1.93, "train/grad_norm": 2.1, "train/lr": 1.9e-05, ...}
//   {"step": 12, "val/loss": 1.88, ...}
//
// A resumed run goes on where its checkpoint was: lines of later steps, which are about to be done again, are dropped;
// earlier history is never erased. Written by rank 0. Not thread-safe.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sluice/v1/types.pb.h"

namespace sluice::engine {

class MetricsLog {
 public:
  // Opens `path` (made where it is not there) for a run that has done `steps_done` steps. Unavailable: it cannot be
  // written.
  static absl::StatusOr<std::unique_ptr<MetricsLog>> Open(const std::string& path, int64_t steps_done);

  // A line each, flushed. Errors are the file system's (ResourceExhausted: disk full).
  absl::Status Write(const v1::StepMetrics& step);
  absl::Status Write(const v1::ValidationMetrics& validation);

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  explicit MetricsLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  absl::Status WriteLine(const std::string& line);

  const std::string path_;
  const std::unique_ptr<std::FILE, CloseFile> file_;
};

}  // namespace sluice::engine
