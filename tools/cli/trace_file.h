// The file of a job's stages for a trace viewer (TraceJson). It is made before anything runs, so that a path that
// cannot be written costs no run.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sluice/v1/types.pb.h"

namespace sluice::cli {

class TraceFile {
 public:
  // An empty path: there is no file, and nothing is written. InvalidArgument: it cannot be made.
  static absl::StatusOr<TraceFile> Create(const std::string& path);

  // All of it, once.
  absl::Status Write(const std::vector<v1::StageSpan>& spans, const v1::Job& job);

 private:
  TraceFile(const std::string& path, std::ofstream out);

  std::string path_;
  std::ofstream out_;
};

}  // namespace sluice::cli
