// What commands print: tables for people, JSON and YAML for programs.
#pragma once

#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "absl/time/time.h"
#include "sluice/v1/controller.pb.h"
#include "sluice/v1/types.pb.h"

namespace sluice::cli {

enum class Format { kTable, kJson, kYaml };

// One object on one line, with the field names of the API.
std::string ToJson(const google::protobuf::Message& message);
// The same as YAML, in blocks.
std::string ToYaml(const google::protobuf::Message& message);

// Columns as wide as their widest cell, two blanks apart; the first row is the heading.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

std::string FormatJobs(const std::vector<v1::Job>& jobs, absl::Time now);
std::string FormatJob(const v1::Job& job, absl::Time now);
std::string FormatWorkers(const v1::ListWorkersResponse& workers, absl::Time now);

// "QUEUED" for JOB_STATE_QUEUED.
std::string StateName(v1::JobState state);

// "42s", "3m07s", "2h05m", "3d04h".
std::string ShortDuration(absl::Duration duration);

}  // namespace sluice::cli
