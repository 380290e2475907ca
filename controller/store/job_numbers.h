// The texts that stand for rows: `job-17` for a job, and the tokens of ListJobs' pages.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "controller/store/records.h"

namespace sluice::controller {

std::string JobIdOfNumber(int64_t number);

// NotFound (no such job) where the text is no job id.
absl::StatusOr<int64_t> NumberOfJobId(const std::string& job_id);

// A token that says: go on below this number, with this filter, in this store.
std::string MakePageToken(int64_t below_number, const JobFilter& filter, const std::string& store_id);

// InvalidArgument: not made by MakePageToken with this filter and store.
absl::StatusOr<int64_t> ParsePageToken(const std::string& token, const JobFilter& filter, const std::string& store_id);

}  // namespace sluice::controller
