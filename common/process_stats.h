// What the kernel says of this process.
#pragma once

#include <cstdint>

namespace sluice {

struct ProcessStats {
  int64_t resident_bytes = 0;
  int64_t open_fds = 0;
  double start_time_s = 0;  // since 1970
};

// Reads /proc/self. What cannot be read stays 0.
ProcessStats ReadProcessStats();

}  // namespace sluice
