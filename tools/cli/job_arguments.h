// The arguments that every command about a job file has: the file, and `key=value` overrides after it.
#pragma once

#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "absl/status/statusor.h"
#include "sluice/v1/job.pb.h"

namespace sluice::cli {

struct JobArguments {
  std::string file;
  std::vector<std::string> overrides;
};

void AddJobArguments(CLI::App* command, JobArguments* arguments);

// Reads and judges the job: the table's rules, the rules across keys and, with `check_files`, what the paths lead to.
// InvalidArgument with every error, one a line.
absl::StatusOr<v1::JobSpec> LoadJobArguments(const JobArguments& arguments, bool check_files);

// How a model is computed that a command looks at: values of the engine section.
struct ComputeArguments {
  std::string device = "auto";
  std::string dtype = "fp32";
};

void AddComputeArguments(CLI::App* command, ComputeArguments* arguments);

// A job that only names a model, for looking at it.
absl::StatusOr<v1::JobSpec> ModelOnlyJob(const std::string& model_folder, const ComputeArguments& compute);

}  // namespace sluice::cli
