// Where the time of a piece of GPU work goes, kernel by kernel, through CUPTI's activity records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::engine {

struct KernelTime {
  std::string name;  // demangled, without template arguments
  int64_t calls = 0;
  double microseconds = 0;  // in all
};

struct KernelProfile {
  std::vector<KernelTime> kernels;  // longest first
  double busy_microseconds = 0;     // at least one kernel or copy was running
  // Kernels of NCCL: in all, and while nothing else was running.
  double communication_microseconds = 0;
  double exposed_communication_microseconds = 0;
  double elapsed_microseconds = 0;  // from the start of the first to the end of the last
};

// Records between Start and Stop. One at a time in a process.
absl::Status StartKernelProfile();
absl::StatusOr<KernelProfile> StopKernelProfile();

// As a table to standard error.
void PrintKernelProfile(const KernelProfile& profile);

}  // namespace sluice::engine
